// What stands in front of the bodies: the trace, files, meshes, groups, symbols, rules and
// suppressions.
#pragma once

#include "ir/text/print/lines.h"
#include "ir/text/print/words.h"

namespace spmd::ir {

class TextHeader {
public:
  TextHeader(const Program &program, TextLines &lines)
      : program_(program), words_(program), lines_(lines) {}

  // `mesh`: the one that is current behind it.
  void print(MeshId mesh);

private:
  void trace();
  std::string producer() const;
  std::string missing() const;
  void files();
  void symbols();
  void symbol(const SymbolInfo &symbol);
  void mesh(const Mesh &mesh);
  std::string axis(const Mesh &mesh, const Axis &axis) const;
  std::string axis_size(const Mesh &mesh, const Axis &axis) const;
  std::string ranks(int64_t ranks) const;
  std::string atom(Atom atom) const;
  std::string layout(llvm::ArrayRef<Atom> atoms) const;
  void group(const Group &group);
  void rule(const UserRule &rule);
  void suppression(const Suppression &row);

  const Program &program_;
  TextWords words_;
  TextLines &lines_;
};

} // namespace spmd::ir
