// Views are carried out on the numbers of elements instead of the elements.
#include "runtime/reference/storage.h"

#include "checker/program_queries.h"

#include "ir/support/check.h"
#include "ir/support/error.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::InstId;
using ir::ValueId;

namespace {

bool names(const ir::Program &program, const ir::Operand &operand, ValueId value) {
  if (operand.is_value())
    return operand.as_value() == value;
  return operand.form == ir::Operand::Form::List &&
         llvm::any_of(program.operand_lists[operand.as_list()],
                      [&](const ir::Operand &each) { return names(program, each, value); });
}

} // namespace

bool is_write(const ir::Program &program, const ir::Inst &inst, ValueId result) {
  ValueId target = program.values[result].alias_of;
  if (!target.valid())
    return false;
  bool out = false;
  for (const ir::Operand &operand : program.operand_lists[inst.operands]) {
    if (operand.form == ir::Operand::Form::Name) {
      out = program.is_out(operand.as_name());
      continue;
    }
    bool member =
        operand.form == ir::Operand::Form::List &&
        llvm::any_of(program.operand_lists[operand.as_list()], [&](const ir::Operand &each) {
          return each.mut && names(program, each, target);
        });
    if (member || ((operand.mut || out) && names(program, operand, target)))
      return true;
    out = false;
  }
  return false;
}

Storage::Storage(Reference &reference, BodySite site)
    : program_(reference.program()), site_(site),
      numbering_(reference.checked(), Domain::Field, /*seed=*/0) {}

ValueId Storage::root(ValueId value) const {
  while (program_.values[value].alias_of.valid())
    value = program_.values[value].alias_of;
  return value;
}

InstId Storage::made_by(ValueId value) const { return checker::defining_inst(program_, value); }

llvm::Expected<Meaning>
Storage::element_numbers(ValueId value, llvm::function_ref<const Meaning *(ValueId)> meaning) {
  ValueId base = program_.values[value].alias_of;
  if (!base.valid()) {
    const Meaning *content = meaning(value);
    if (!content || content->pieces.empty())
      return make_error(
          fmt::format("what {} holds is not known", ir::print_value(program_, value)));
    // Counted from 1: 0 is what a view shows where it shows no element, as in what it pads. The
    // numbers go through the ops that made the views, in modular arithmetic, which keeps them exact
    // whatever their type.
    Meaning numbers{content->per_rank, {}};
    for (const Tensor &piece : content->pieces) {
      std::vector<Residue> cells;
      for (int64_t i = 0; i < piece.size(); ++i)
        cells.push_back(Residue(i + 1));
      numbers.pieces.push_back({piece.dtype, piece.dims, std::move(cells)});
    }
    return numbers;
  }
  InstId id = made_by(value);
  if (!id.valid())
    return make_error(
        fmt::format("{} is a view that no instruction made", ir::print_value(program_, value)));
  const ir::Inst inst = program_.insts[id];
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  if (numbering_.resolve(inst.op).boundary == rules::Boundary::Alias && operands.values.size() > 1)
    return element_numbers(operands.values[1], meaning); // the same part as the older name
  llvm::Expected<Meaning> from = element_numbers(base, meaning);
  // A write gives its target a new name: the same elements, whatever is in them.
  if (!from || is_write(program_, inst, value))
    return from;
  std::vector<const Meaning *> args;
  const Meaning nothing;
  for (ValueId operand : operands.values) {
    const Meaning *other = operand == base ? &*from : meaning(operand);
    args.push_back(other ? other : &nothing);
  }
  llvm::Expected<Meanings> seen = numbering_.apply(id, site_, args);
  if (!seen)
    return seen.takeError();
  return std::move((*seen)[value.index - inst.first_result.index]);
}

llvm::Expected<Storage::View>
Storage::derive(InstId alias, llvm::function_ref<const Meaning *(ValueId)> meaning) {
  checker::OperandList operands;
  operands.read(program_, program_.insts[alias].operands);
  View view;
  auto keep = [](const Meaning &whole) -> llvm::Expected<Meaning> { return whole; };
  if (operands.values.size() < 2) {
    view.of.push_back(operands.values.front());
    view.maps.push_back(keep);
    return view;
  }
  ValueId old = operands.values[1], base = root(old);
  llvm::Expected<Meaning> wanted = element_numbers(old, meaning);
  if (!wanted)
    return wanted.takeError();
  if (wanted->pieces.empty())
    return make_error("what the name is a view of is not known");
  // Writes to this storage so far, the latest first, then what it held at the start: each element
  // is what the first of them left that has it.
  std::vector<ValueId> writers;
  for (uint32_t i = alias.index; i-- > 0;) {
    const ir::Inst inst = program_.insts[InstId{i}];
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (ValueId result = inst.result(r); root(result) == base && is_write(program_, inst, result))
        writers.push_back(result);
  }
  writers.push_back(base);
  // Which elements a view shows is the same on all coordinates of what is a list.
  const Tensor &asked = wanted->pieces.front();
  std::vector<char> taken(static_cast<size_t>(asked.size()), 0);
  for (ValueId writer : writers) {
    llvm::Expected<Meaning> own = element_numbers(writer, meaning);
    if (!own)
      return own.takeError();
    llvm::DenseMap<uint64_t, int64_t> at;
    const std::vector<Residue> &numbers = own->pieces.front().of<Residue>();
    for (size_t i = 0; i < numbers.size(); ++i)
      at[numbers[i].value()] = static_cast<int64_t>(i);
    // From which element of the writer each element comes, or from none.
    std::vector<int64_t> from(taken.size(), -1);
    bool any = false;
    for (size_t i = 0; i < taken.size(); ++i)
      if (auto found = at.find(asked.of<Residue>()[i].value()); found != at.end() && !taken[i]) {
        from[i] = found->second;
        taken[i] = any = true;
      }
    if (!any)
      continue;
    if (!meaning(writer))
      return make_error(fmt::format("{}, which was written to it, has no meaning",
                                    ir::print_value(program_, writer)));
    view.of.push_back(writer);
    view.maps.push_back([from, dims = asked.dims](const Meaning &content) {
      Meaning made{content.per_rank, {}};
      for (const Tensor &piece : content.pieces) {
        made.pieces.push_back(zeros_like(piece, dims));
        made.pieces.back().visit([&](auto &cells) {
          using T = typename std::decay_t<decltype(cells)>::value_type;
          const std::vector<T> &source = piece.of<T>();
          for (size_t i = 0; i < cells.size(); ++i)
            if (from[i] >= 0)
              cells[i] = source[static_cast<size_t>(from[i])];
        });
      }
      return llvm::Expected<Meaning>(std::move(made));
    });
  }
  return view;
}

} // namespace spmd::runtime
