// The printer of JSON documents, shared by the files that implement it: print.cc the document
// and its tables, _ops operations and what surrounds them, _types values and types. It writes
// straight into one string.
#pragma once

#include "ir/claims.h"
#include "ir/input/input.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Sequence.h"

namespace spmd::ir {

// Ids in the order of their first use.
template <class IdT> class Numbering {
public:
  void add(IdT id) {
    if (numbers_.try_emplace(id.index, static_cast<uint32_t>(ids_.size())).second)
      ids_.push_back(id);
  }
  uint32_t operator[](IdT id) const { return numbers_.find(id.index)->second; }
  llvm::ArrayRef<IdT> ids() const { return ids_; }

private:
  llvm::DenseMap<uint32_t, uint32_t> numbers_;
  std::vector<IdT> ids_;
};

class JsonPrinter {
public:
  explicit JsonPrinter(const Program &program) : p_(program) {}
  std::string print();
  std::string print_stream();

private:
  // Numbering.
  void number_all();
  void order_functions();
  void number(LocId loc);
  void number(FrameId frame);
  void number(const Body &body);

  // Pieces of JSON. A member or an element writes the comma before itself, where one is needed.
  void separate() {
    if (out_.back() != '{' && out_.back() != '[')
      out_ += ", ";
  }
  void key(std::string_view name);
  void text(llvm::StringRef value);
  void text(std::string_view name, StringId value);
  void number(std::string_view name, int64_t value);
  void flag(std::string_view name, bool value);
  void value_name(ValueId id) { text(ir::print(p_.values[id].name, p_.strings)); }
  void value_name(std::string_view name, ValueId id);
  // A key of the document, and a list or map of it with one entry per line.
  void top(std::string_view name);
  template <class Range, class F>
  void table(std::string_view name, const Range &range, F &&entry, char open = '[') {
    if (range.begin() == range.end())
      return;
    top(name);
    lines(range, entry, "    ", open);
  }
  // In a stream the header is one line.
  template <class Range, class F>
  void lines(const Range &range, F &&entry, std::string_view indent, char open);

  // The document.
  void header();
  void facts();
  void producer();
  void missing();
  void symbol(const SymbolInfo &symbol);
  void mesh(const Mesh &mesh);
  void axis(const Mesh &mesh, const Axis &axis);
  bool is_parents(const Mesh &mesh, const Axis &axis) const;
  void ranks(int64_t ranks);
  void layout(llvm::ArrayRef<Atom> layout);
  void group(const Group &group);
  void file(FileId id);
  void frame(FrameId id);
  void context(const Context &context);
  Context full(ContextId id) const;
  void extra(llvm::StringRef name, llvm::StringRef json);
  void rule(const UserRule &rule);
  void suppression(const Suppression &entry);
  void function(const Function &function);
  void output(const Output &output);
  void param(const Param &param);
  void gradient(const GradContract &contract, const Value &value, MeshId mesh);

  // Operations.
  void op(InstId id, ContextId outer);
  void operand_members(OperandsId id);
  void operands(OperandsId id) { operand_list(p_.operand_lists[id]); }
  void operand_list(llvm::ArrayRef<Operand> list);
  void operand(const Operand &operand);
  void mutated(OperandsId id);
  void location(LocId id);
  void attrs(const Inst &inst, MeshId mesh);
  void regions(AttrsId id);
  // `mesh` of the op, `rank` of the operand or result: for what the attribute claims.
  void attr_value(const AttrValue &value, MeshId mesh, std::optional<unsigned> rank);
  void claim_list(const AttrList &list, const Inst &inst, bool results, MeshId mesh);
  void real(double value);
  void whole_type(const Claim &claim, const Inst &inst, MeshId mesh);
  void axes(llvm::ArrayRef<AxisRef> refs);
  void assertions(InstId id);
  void expectation(const Expectation &expected);

  // Types and shapes.
  void value(ValueId id, MeshId mesh);
  void shapes(ShapeId shape, ShapeId global);
  // `own_shape`: the number of dimensions is stated beside the type.
  void type(TypeId id, std::optional<unsigned> rank, bool own_shape);
  void claim(ClaimId id, MeshId mesh, std::optional<unsigned> rank);
  void claim_members(const Claim &claim, MeshId mesh, std::optional<unsigned> rank);
  void spec(const Type &type, std::optional<unsigned> rank);
  void axis_names(const Mesh &mesh, llvm::ArrayRef<AxisId> axes);
  std::optional<unsigned> rank_of(ShapeId shape) const;
  std::optional<unsigned> rank_of(ShapeId local, ShapeId global) const;
  std::optional<unsigned> rank_of_operand(const Inst &inst, size_t i) const;
  MeshId mesh_of(ContextId id) const {
    return p_.contexts[id].mesh.valid() ? p_.contexts[id].mesh : MeshId{0};
  }
  static llvm::iota_range<uint32_t> insts_of(Body body) {
    return llvm::seq(body.first.index, body.last.index);
  }

  const Program &p_;
  bool stream_ = false;
  std::string out_;
  Numbering<ContextId> contexts_;
  Numbering<FrameId> frames_;
  Numbering<StringId> scopes_;
  Numbering<FileId> files_;
  std::vector<FunctionId> functions_; // in the order in which they are printed
  std::vector<MeshId> value_meshes_;  // by ValueId
};

template <class Range, class F>
void JsonPrinter::lines(const Range &range, F &&entry, std::string_view indent, char open) {
  out_ += open;
  bool first = true;
  for (const auto &item : range) {
    if (stream_)
      out_ += first ? "" : ", ";
    else
      (out_ += first ? "\n" : ",\n") += indent;
    first = false;
    entry(item);
  }
  if (!first && !stream_)
    (out_ += '\n') += indent.substr(2);
  out_ += open == '[' ? ']' : '}';
}

} // namespace spmd::ir
