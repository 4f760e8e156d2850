// The printer of the text form, shared by the files that implement it: print.cc prints the
// program, _inst one instruction, _tables what stands before the bodies.
#pragma once

#include "ir/claims.h"
#include "ir/dialect/dialect.h"
#include "ir/dialect/print_type.h"
#include "ir/text/text.h"

#include <string>
#include <vector>

namespace spmd::ir {

class TextPrinter {
public:
  // `words`: types in these, in a comment behind each statement.
  explicit TextPrinter(const Program &program, std::optional<Dialect> words = std::nullopt);
  // From here on types are written in the words of the program's dialect.
  void tell_in_words() { in_place_ = true; }
  std::string print_program();
  // Without types of results, location and scope.
  std::string print_bare(InstId inst);

private:
  // Tables (print_tables.cc).
  void tables();
  void trace();
  std::string producer() const;
  std::string missing() const;
  void files();
  void mesh(const Mesh &mesh);
  std::string axis(const Mesh &mesh, const Axis &axis) const;
  std::string axis_size(const Mesh &mesh, const Axis &axis) const;
  std::string ranks(int64_t ranks) const;
  std::string atom(Atom atom) const;
  std::string layout(llvm::ArrayRef<Atom> atoms) const;
  void group(const Group &group);
  void symbol(const SymbolInfo &symbol);
  void rule(const UserRule &rule);
  void suppression(const Suppression &row);
  void param(const Param &param);
  std::string contract(const Param &param);
  std::string sync(llvm::ArrayRef<Sync> list) const;
  std::string hints(llvm::ArrayRef<SyncHint> list) const;
  void output(const Output &output);

  // Bodies and functions (print.cc).
  void functions();
  void find_functions(Body body, std::vector<bool> &met, std::vector<FunctionId> &order);
  void function(const Function &function);
  std::string parameter(const FunctionParam &param);
  void body(Body body, const Context &around);
  void run(InstId first, InstId last, const Context &around);
  std::string context_attrs(const Context &from, const Context &to) const;
  std::string context_words(const Context &from, const Context &to, bool &only_local) const;
  Context context(ContextId id) const;
  Context top() const;
  bool is_inline(const Inst &inst) const;
  const Function *own_body(const Inst &inst) const;
  bool has_inline_form(const Inst &inst) const;
  std::optional<Context> context_of_body(const Inst &inst) const;
  bool has_inline_attrs(const Inst &inst) const;
  bool states_boundary(ValueId result, const Claim &claim, MeshId mesh) const;
  void count_uses();

  // One instruction (print_inst.cc).
  void inst(InstId id);
  void local_map(InstId id);
  std::string operation(InstId id) const;
  std::string results(const Inst &inst, bool types) const;
  std::string result(ValueId id, std::string type, bool gradient) const;
  std::string operands(llvm::ArrayRef<Operand> operands) const;
  std::string operand(Operand operand) const;
  std::string attrs(InstId id) const;
  std::string attr(const Inst &inst, const Attr &attr, MeshId target) const;
  std::string value_text(const AttrValue &value, MeshId mesh) const;
  std::string word(const AttrValue &value) const;
  std::string list(const AttrList &list, MeshId mesh) const;
  std::string dict(const AttrDict &dict, MeshId mesh) const;
  std::string tail(InstId id) const;
  std::string in_words(ValueId first, uint32_t count) const;
  std::string where(LocId loc) const;
  std::string frames(FrameId id) const;
  std::string expectation(const Expectation &row) const;
  std::string local_map_result(const Inst &inst, unsigned i) const;

  // Small things.
  std::string op_name(llvm::StringRef name) const;
  std::string name(StringId id) const; // bare, or in quotes where it is no name
  std::string name(llvm::StringRef text) const;
  std::string function_name(const Function &function) const; // with its `@`
  std::string key(llvm::StringRef key) const;
  std::string finding(StringId id) const;
  std::string quoted(StringId id) const;
  std::string axes(const AxisRefs &refs) const;
  std::string axes(MeshId mesh, AxisSet set) const;
  // The type of a value with all that it states; empty if it states nothing.
  std::string value_type(ValueId id) const;
  std::string claim(ClaimId id, MeshId around) const; // `null` if it says nothing
  std::string claim_type(TypeId type, ShapeId shape, ShapeId global_shape, MeshId stated,
                         MeshId around) const;
  void line(std::string_view text);
  const AttrValue *attr_of(const Inst &inst, llvm::StringRef key) const {
    return program_.find(inst.attrs, key);
  }

  const Program &program_;
  std::string out_;
  unsigned indent_ = 0;
  std::optional<Dialect> words_;
  bool in_place_ = false;      // types in the words of the program's dialect
  MeshId mesh_;                // the current one
  std::vector<uint32_t> uses_; // of functions, by instructions
  std::vector<bool> inline_;   // functions that stand where they are used
};

// Shortest text that reads back as the same number and as no integer.
std::string print_number(double number);
// Parts with a separator between them.
std::string joined(llvm::ArrayRef<std::string> parts, std::string_view separator = ", ");

} // namespace spmd::ir
