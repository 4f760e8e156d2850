// Functions and bodies as text: instructions in another context than the one around them stand in
// `with` or `local` blocks.
#pragma once

#include "ir/text/print/inlined.h"
#include "ir/text/print/instructions.h"
#include "ir/text/print/lines.h"

namespace spmd::ir {

class TextBodies {
public:
  TextBodies(const Program &program, TextTypes &types, TextLines &lines)
      : program_(program), types_(types), inlined_(program, types), insts_(program, types),
        words_(program), lines_(lines) {}

  void functions();
  void body(Body body, const Context &around);

private:
  void function(const Function &function);
  std::string parameter(const FunctionParam &param) const;
  void run(InstId first, InstId last, const Context &around);
  void inst(InstId id);
  void local_map(InstId id);
  std::string local_map_result(const Inst &inst, unsigned i) const;

  const Program &program_;
  TextTypes &types_;
  InlinedBodies inlined_;
  InstText insts_;
  TextWords words_;
  TextLines &lines_;
};

} // namespace spmd::ir
