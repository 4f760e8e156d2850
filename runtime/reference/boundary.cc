// Boundary ops on meanings. A claim changes nothing; what a program does to its data by `scale`
// changes nothing of what is meant.
#include "runtime/reference/reference.h"

#include "checker/operand_list.h"

#include "rules/shapes/attrs.h"
#include "rules/transitions/axes.h"

#include "ir/mesh/axis_scale.h"
#include "ir/support/check.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <cmath>
#include <deque>

namespace spmd::runtime {

using ir::AxisId;
using ir::AxisSet;

namespace {

// Axes on which a sum is taken for what each rank holds of it.
AxisSet per_rank_addends(const ResolvedInst &seen) {
  if (seen.op().boundary != rules::Boundary::MutateType || !seen.from(0) || !seen.result(0))
    return {};
  const ir::Type &before = seen.from(0)->type();
  return (before.of(ir::Kind::Partial) - before.zero()) & seen.result(0)->per_rank_axes();
}

bool is_one(const Meaning &meaning) { return !meaning.pieces.empty(); }

} // namespace

bool Reference::takes_addends(ir::InstId id, BodySite site) {
  if (resolve(program_.insts[id].op).boundary != rules::Boundary::MutateType)
    return false;
  llvm::Expected<std::unique_ptr<ResolvedInst>> seen = resolve_inst(id, site);
  if (!seen) {
    llvm::consumeError(seen.takeError());
    return false;
  }
  return per_rank_addends(**seen) != AxisSet();
}

ir::ValueId Reference::value_received_by(ir::InstId recv) {
  if (sent_)
    return sent_->lookup(recv.index);
  sent_.emplace();
  llvm::DenseMap<int64_t, std::deque<ir::ValueId>> waiting; // by tag
  checker::OperandList operands;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[ir::InstId{i}];
    rules::Boundary op = resolve(inst.op).boundary;
    if ((op != rules::Boundary::Send && op != rules::Boundary::Recv) ||
        program_.find(inst.attrs, "axis") || program_.find(inst.attrs, "group"))
      continue;
    const ir::AttrValue *attr = program_.find(inst.attrs, "tag");
    int64_t tag = attr && attr->form == ir::AttrForm::Integer ? attr->as_integer() : 0;
    std::deque<ir::ValueId> &sent = waiting[tag];
    operands.read(program_, inst.operands);
    if (op == rules::Boundary::Send && !operands.values.empty()) {
      sent.push_back(operands.values[0]);
    } else if (op == rules::Boundary::Recv && !sent.empty()) {
      (*sent_)[i] = sent.front();
      sent.pop_front();
    }
  }
  return sent_->lookup(recv.index);
}

llvm::Expected<Meaning> Reference::received(const rules::TensorInfo &sent,
                                            const rules::TensorInfo &received,
                                            const Meaning &meaning) {
  auto from = distribution_of(program_, sent), to = distribution_of(program_, received);
  if (!from || !to)
    return llvm::joinErrors(from.takeError(), to.takeError());
  if (!*from || !*to || (*from)->ranks().size() != (*to)->ranks().size())
    return make_error("what was sent has other ranks than what is received");
  if ((*from)->type().scale != (*to)->type().scale)
    return make_error("what was sent has another scale than what is received");
  std::vector<Tensor> held = (*from)->place(meaning);
  std::vector<const Tensor *> seen;
  for (const Tensor &tensor : held)
    seen.push_back(&tensor);
  return (*to)->denote(seen);
}

llvm::Expected<Meanings> Reference::boundary(const ResolvedInst &seen, Meanings operands) {
  const rules::Boundary op = seen.op().boundary;
  std::string_view name = rules::boundary_name(op);
  Meanings made(seen.inst().result_count);
  auto first = [&](llvm::Expected<Meaning> meaning) -> llvm::Expected<Meanings> {
    if (!meaning)
      return meaning.takeError();
    if (!made.empty())
      made[0] = std::move(*meaning);
    return std::move(made);
  };
  if (rules::holds_no_data(op))
    return made;
  if (op == rules::Boundary::AxisIndex)
    return first(coordinate(seen));
  if (rules::takes_norm(op))
    return norms(seen, std::move(operands));
  if (op == rules::Boundary::Store && operands.size() > 1)
    return first(std::move(operands[1]));
  if (operands.empty() || !is_one(operands[0]))
    return make_error(fmt::format("`{}` has no meaning without what is around the program", name));
  if (op == rules::Boundary::Scale) {
    llvm::Expected<Rational> factor = factor_of_scale(seen);
    if (!factor)
      return factor.takeError();
    for (Tensor &piece : operands[0].pieces)
      multiply(piece, factor->first, factor->second);
    return first(std::move(operands[0]));
  }
  if (op == rules::Boundary::Send && (seen.app().attr("axis") || seen.app().attr("group")))
    return make_error("`send` along an axis is another stage's to receive");
  if (op != rules::Boundary::Send && !rules::is_same_data(op))
    return make_error(
        fmt::format("`{}` is carried out by the program that is derived from it", name));
  if (made.empty() || !seen.to(0))
    return made;
  if (per_rank_addends(seen))
    return make_error("the sum does not tell what each rank holds of it");
  // Here, not at the end: a claim may join pieces of the operand, or be about another mesh.
  const Distribution &from =
      op == rules::Boundary::ReinterpretMesh ? *seen.known(0) : *seen.from(0);
  if (from.per_rank_axes() != seen.result(0)->per_rank_axes())
    return first(reframed(program_, operands[0], from, *seen.to(0)));
  return first(std::move(operands[0]));
}

// The coordinate of each rank, axes as the call names them, outermost first.
llvm::Expected<Meaning> Reference::coordinate(const ResolvedInst &seen) {
  rules::Outcome ignored;
  std::optional<rules::CallAxes> axes = rules::resolve_axes(seen.app(), {}, ignored);
  if (!axes || !seen.result(0))
    return make_error("the axes of `axis_index` are not known");
  const ir::Mesh &mesh = seen.app().mesh();
  Grid per_rank = seen.result(0)->per_rank_grid();
  Meaning made{per_rank.axes(), {}};
  for (int64_t i = 0; i < per_rank.size(); ++i) {
    Grid::Coordinates at = per_rank.coordinates(i);
    int64_t index = 0;
    for (const rules::WrittenAxis &written : axes->written)
      for (AxisId axis : written.axes)
        index = index * mesh[axis].size() + at[axis.index];
    Tensor number = Tensor::make(seen.result(0)->dtype(), seen.result(0)->whole(), domain_);
    number.visit([&](auto &cells) {
      using T = typename std::decay_t<decltype(cells)>::value_type;
      for (T &cell : cells) {
        if constexpr (std::is_same_v<T, Residue>)
          cell = Residue(index);
        else
          cell = static_cast<double>(index);
      }
    });
    made.pieces.push_back(std::move(number));
  }
  return made;
}

// Sizes of axes that are local in the whole program are in no scale: there the data are what is
// meant.
llvm::Expected<Rational> Reference::factor_of_scale(const ResolvedInst &seen) {
  const ir::AttrValue *by = seen.app().attr("by");
  SPMD_CHECK(by && by->form == ir::AttrForm::Scale, "a scale that was checked");
  ir::MeshId mesh = seen.app().op_context().mesh;
  auto written = by->as<ir::ScaleId>();
  std::optional<Rational> all = number_of(program_, written, mesh);
  std::optional<Rational> counted =
      number_of(program_, ir::canonical_scale(program_, written, mesh), mesh);
  if (!all || !counted)
    return make_error("a symbol in a scale has no value");
  return Rational{all->first * counted->second, all->second * counted->first};
}

namespace {

// Rows that a norm is made of, on single tensors: in the field a root is an unknown function, the
// same one wherever the row is computed.
class NormArithmetic {
public:
  NormArithmetic(ir::Program &program, rules::Rules &rules, Domain domain)
      : program_(program), rules_(rules), domain_(domain) {}

  llvm::Expected<Tensor> of(llvm::StringRef row, llvm::ArrayRef<const Tensor *> operands,
                            const Dims &dims, std::optional<double> number = std::nullopt) {
    llvm::SmallVector<rules::Slot, 2> slots;
    llvm::SmallVector<ir::DType, 2> dtypes;
    llvm::SmallVector<Dims, 2> extents;
    llvm::SmallVector<TensorBlock, 2> held;
    for (uint32_t i = 0; i < operands.size(); ++i) {
      slots.push_back({rules::Slot::Form::Tensor, i, 1, {}, {}});
      dtypes.push_back(operands[i]->dtype);
      extents.push_back(operands[i]->dims);
      held.push_back({operands[i], operands[i]->dtype, &operands[i]->dims});
    }
    if (number)
      slots.push_back({rules::Slot::Form::Literal, 0, 0, ir::AttrValue::number(*number), {}});
    ir::DType dtype = dtypes.front();
    ir::OpNameId name{program_.strings.add(row).index};
    auto ready = prepare(program_, rules_.resolve(name), program_.no_attrs(), slots, dtypes,
                         extents, dtype, dims);
    if (!ready)
      return ready.takeError();
    Tensor made = Tensor::make(dtype, dims, domain_);
    if (llvm::Error failed = (*ready)->run(held, {}, made, domain_, {}))
      return llvm::Expected<Tensor>(std::move(failed));
    return made;
  }

private:
  ir::Program &program_;
  rules::Rules &rules_;
  Domain domain_;
};

// What gradients of this norm are multiplied by so that it does not pass the bound.
llvm::Expected<Tensor> clip_factor(NormArithmetic &rows, const Tensor &norm, double bound) {
  llvm::Expected<Tensor> made = rows.of("add", {&norm}, {}, 1e-6);
  if (made)
    made = rows.of("reciprocal", {&*made}, {});
  if (made)
    made = rows.of("mul", {&*made}, {}, bound);
  if (made)
    made = rows.of("minimum", {&*made}, {}, 1);
  return made;
}

} // namespace

// The root of the sum of all squares, over the lists that the call names too; gradients are scaled
// down to the norm that is allowed.
llvm::Expected<Meanings> Reference::norms(const ResolvedInst &seen, Meanings operands) {
  const ir::Mesh &mesh = seen.app().mesh();
  NormArithmetic rows(program_, rules_, domain_);
  rules::Outcome ignored;
  AxisSet summed;
  if (seen.app().attr("axis") || seen.app().attr("group"))
    if (std::optional<rules::CallAxes> axes = rules::resolve_axes(seen.app(), {}, ignored))
      summed = axes->all();
  AxisSet per_rank;
  for (const Meaning &meaning : operands)
    per_rank |= meaning.per_rank;
  Grid every(mesh, per_rank), kept(mesh, per_rank - summed);
  std::vector<Tensor> norms(static_cast<size_t>(kept.size()),
                            Tensor::make(ir::DType::F64, {}, domain_));
  for (const Meaning &meaning : operands) {
    Grid own(mesh, meaning.per_rank), spread(mesh, meaning.per_rank | (per_rank - summed));
    for (int64_t c = 0; c < spread.size(); ++c) {
      Grid::Coordinates at = spread.coordinates(c);
      const Tensor &piece = meaning.pieces[static_cast<size_t>(own.position(at))];
      if (piece.is_complex())
        return make_error("norms of complex numbers are not supported");
      llvm::Expected<Tensor> squares = rows.of("sum_squares", {&piece}, {});
      if (!squares)
        return squares.takeError();
      combine_into(norms[static_cast<size_t>(kept.position(at))], *squares, ir::Combiner::Sum);
    }
  }
  for (Tensor &norm : norms) {
    llvm::Expected<Tensor> root = rows.of("sqrt", {&norm}, {});
    if (!root)
      return root.takeError();
    norm = std::move(*root);
  }
  Meanings made(seen.inst().result_count);
  size_t first = seen.op().boundary == rules::Boundary::TotalNorm || made.size() != operands.size();
  if (first && !made.empty() && seen.result(0)) {
    made[0] = {kept.axes(), norms};
    for (Tensor &piece : made[0].pieces)
      piece.dtype = seen.result(0)->dtype();
  }
  if (seen.op().boundary == rules::Boundary::TotalNorm)
    return made;
  const ir::AttrValue *stated = rules::any_attr(seen.app(), {"max_norm"});
  if (!stated || (stated->form != ir::AttrForm::Float && stated->form != ir::AttrForm::Integer))
    return make_error("`clip_norm` does not state max_norm");
  double bound = stated->form == ir::AttrForm::Float ? stated->as_number()
                                                     : static_cast<double>(stated->as_integer());
  for (Tensor &norm : norms) {
    llvm::Expected<Tensor> factor = clip_factor(rows, norm, bound);
    if (!factor)
      return factor.takeError();
    norm = std::move(*factor);
  }
  for (size_t i = 0; i < operands.size() && first + i < made.size(); ++i) {
    Grid own(mesh, operands[i].per_rank), out(mesh, operands[i].per_rank | kept.axes());
    Meaning &clipped = made[first + i];
    clipped.per_rank = out.axes();
    for (int64_t c = 0; c < out.size(); ++c) {
      Grid::Coordinates at = out.coordinates(c);
      const Tensor &piece = operands[i].pieces[static_cast<size_t>(own.position(at))];
      llvm::Expected<Tensor> scaled =
          rows.of("mul", {&piece, &norms[static_cast<size_t>(kept.position(at))]}, piece.dims);
      if (!scaled)
        return scaled.takeError();
      clipped.pieces.push_back(std::move(*scaled));
    }
  }
  return made;
}

} // namespace spmd::runtime
