// One instruction on meanings: ordinary ops once for each coordinate of the lists that enter or
// leave, transitions by their words. Boundary ops are in boundary.cc, bodies in run.cc.
#include "runtime/reference/reference.h"

#include "runtime/plan/placement.h"
#include "runtime/plan/row_dims.h"
#include "runtime/plan/unused.h"
#include "runtime/reference/moves.h"

#include "rules/derivative.h"
#include "rules/shards/remesh.h"

#include "ir/support/check.h"
#include "ir/support/error.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AxisSet;
using ir::Kind;

namespace {

// The axes along which an op is applied to what each rank holds: those that are local, and all
// where nobody judged it, so that its claim is all that is known of what it does across ranks.
AxisSet applied_per_rank(const ir::Program &program, const ir::Context &where,
                         const rules::ResolvedOp &op) {
  bool judged = where.check || op.form != rules::OpForm::Equation;
  return judged ? program.local_axes(where) : program.meshes[where.mesh].typed_axes();
}

// The type as the instruction sees it: on its mesh, blocks along these axes as lists.
ir::Type seen_type(const ir::Program &program, const ir::Type &known, ir::MeshId mesh,
                   AxisSet local) {
  ir::Type type = known.mesh() == mesh ? known : rules::remesh(program, known, mesh, {}).type;
  return type.without_shards(local);
}

// A place in a list seen from a larger grid.
size_t piece_at(const Grid &per_rank, const Grid::Coordinates &at) {
  return static_cast<size_t>(per_rank.position(at));
}

} // namespace

llvm::Expected<std::optional<Distribution>> distribution_of(const ir::Program &program,
                                                            const rules::TensorInfo &known) {
  if (!known.type.valid() || !known.shape.valid())
    return std::optional<Distribution>();
  llvm::Expected<Distribution> made = Distribution::make(program, known);
  if (!made)
    return made.takeError();
  return std::optional<Distribution>(std::move(*made));
}

Reference::Reference(checker::CheckedProgram &program, Domain domain, uint64_t seed)
    : checked_(program), program_(program.mutable_program()), rules_(program_), domain_(domain),
      seed_(seed) {
  SPMD_CHECK(domain != Domain::Declared, "a reference does not round");
}

llvm::Expected<std::unique_ptr<ResolvedInst>> Reference::resolve_inst(ir::InstId id,
                                                                      BodySite site) {
  auto seen = std::make_unique<ResolvedInst>();
  seen->inst_ = program_.insts[id];
  seen->op_ = &rules_.resolve(seen->inst_.op);
  seen->operands_.read(program_, seen->inst_.operands);
  const ir::Context where = program_.contexts[seen->inst_.context];
  AxisSet local = applied_per_rank(program_, where, *seen->op_);
  auto place = [&](ir::ValueId value, const char *where, const rules::TensorInfo &known,
                   auto &into) -> llvm::Error {
    llvm::Expected<std::optional<Distribution>> made = distribution_of(program_, known);
    if (!made)
      return make_error(fmt::format("{}{}: {}", ir::print_value(program_, value), where,
                                    llvm::toString(made.takeError())));
    into.push_back(std::move(*made));
    return llvm::Error::success();
  };
  using Seen = llvm::Expected<std::unique_ptr<ResolvedInst>>;
  // What a region takes apart may have had uneven blocks, of which no positions follow.
  constexpr const char *kInside = " inside of its region";
  for (ir::ValueId value : seen->operands_.values) {
    rules::TensorInfo known = checked_.known(value, site.typing), arg = known;
    arg.type =
        program_.types.add(seen_type(program_, program_.types[known.type], where.mesh, local));
    if (llvm::Error problem = place(value, "", known, seen->known_))
      return Seen(std::move(problem));
    if (llvm::Error problem = place(value, kInside, arg, seen->from_))
      return Seen(std::move(problem));
    seen->args_.push_back(arg);
  }
  for (uint32_t i = 0; i < seen->inst_.result_count; ++i) {
    ir::ValueId result = seen->inst_.result(i);
    const ir::Value &value = program_.values[result];
    rules::TensorInfo known = checked_.known(result, site.typing), made = known;
    seen->claims_.push_back({known.shape, value.declared, value.global_shape});
    if (ir::Type type = program_.types[known.type]; type.mesh() == where.mesh)
      made.type = program_.types.add(type.without_shards(local));
    if (llvm::Error problem = place(result, "", known, seen->to_))
      return Seen(std::move(problem));
    if (llvm::Error problem = place(result, kInside, made, seen->results_))
      return Seen(std::move(problem));
  }
  seen->app_.emplace(rules::Application{program_, *seen->op_, seen->inst_.attrs,
                                        seen->inst_.context, seen->operands_.slots, seen->args_,
                                        seen->claims_, false});
  return seen;
}

llvm::Expected<Meanings> Reference::apply(ir::InstId id, BodySite site,
                                          llvm::ArrayRef<const Meaning *> operands) {
  if (const ir::Inst &inst = program_.insts[id]; is_unused(inst, rules_.resolve(inst.op)))
    return Meanings();
  llvm::Expected<std::unique_ptr<ResolvedInst>> seen = resolve_inst(id, site);
  if (!seen)
    return seen.takeError();
  return apply(**seen, id, site, operands);
}

llvm::Expected<Meanings> Reference::apply(const ResolvedInst &seen, ir::InstId id, BodySite site,
                                          llvm::ArrayRef<const Meaning *> operands) {
  SPMD_CHECK(operands.size() == seen.values().size(), "a meaning for each tensor");
  Meanings from;
  bool whole_mesh =
      seen.op().boundary == rules::Boundary::ReinterpretMesh; // its operand is on another mesh
  for (unsigned i = 0; i < operands.size(); ++i) {
    bool data = seen.from(i) && !operands[i]->pieces.empty();
    from.push_back(data && !whole_mesh
                       ? reframed(program_, *operands[i], *seen.known(i), *seen.from(i))
                       : *operands[i]);
  }
  auto run = [&]() -> llvm::Expected<Meanings> {
    switch (seen.op().form) {
    case rules::OpForm::Equation:
      return equation(seen, draw_op(site.path, drawn_by(program_, id)), from, seen.app().slots,
                      seen.inst().attrs);
    case rules::OpForm::Transition:
      return transition(seen, site, std::move(from));
    case rules::OpForm::Boundary:
      return boundary(seen, std::move(from));
    default:
      return make_error(fmt::format("`{}` has no meaning that we can compute",
                                    program_.op_name(seen.inst().op).str()));
    }
  };
  llvm::Expected<Meanings> made = run();
  if (!made)
    return made.takeError();
  // What leaves a region is joined as the claim says.
  for (unsigned i = 0; i < made->size(); ++i)
    if (seen.result(i) && !(*made)[i].pieces.empty() &&
        (*made)[i].per_rank == seen.result(i)->per_rank_axes())
      (*made)[i] = reframed(program_, (*made)[i], *seen.result(i), *seen.to(i));
  return made;
}

namespace {

// The operands of an op at one coordinate. Where some operands are lists along an axis and one is
// pending, the first coordinate gets all of it: what is summed over the axis counts it once.
class CoordinateOperands {
public:
  CoordinateOperands(const ResolvedInst &seen, const Meanings &meanings, AxisSet per_rank)
      : meanings_(meanings) {
    const ir::Mesh &mesh = seen.app().mesh();
    for (unsigned i = 0; i < meanings.size(); ++i) {
      grids_.push_back(Grid(mesh, meanings[i].per_rank));
      AxisSet pending;
      if (seen.from(i)) {
        const ir::Type &type = seen.from(i)->type();
        pending = (type.of(Kind::Partial) - type.zero()) & per_rank;
      }
      once_.push_back(pending);
    }
    zeros_.resize(meanings.size());
  }

  // False where the operand is all at another coordinate.
  bool counts(unsigned arg, const Grid::Coordinates &at) const { return is_first(at, once_[arg]); }
  const Tensor *at(unsigned arg, const Grid::Coordinates &at) {
    const Meaning &meaning = meanings_[arg];
    if (meaning.pieces.empty())
      return nullptr;
    const Tensor &piece = meaning.pieces[piece_at(grids_[arg], at)];
    if (counts(arg, at))
      return &piece;
    zeros_[arg] = zeros_like(piece, piece.dims);
    return &zeros_[arg];
  }

private:
  const Meanings &meanings_;
  std::vector<Grid> grids_;
  std::vector<AxisSet> once_;
  std::vector<Tensor> zeros_;
};

// One call of an op on whole tensors.
class OpCall {
public:
  // Null: it holds no data.
  void operand(const Tensor *tensor, const std::optional<Distribution> &known) {
    tensors_.push_back(tensor);
    dims_.push_back(tensor ? tensor->dims : Dims());
    dtypes_.push_back(tensor ? tensor->dtype : known ? known->dtype() : ir::DType::Unknown);
  }
  std::vector<TensorForm> forms() const {
    std::vector<TensorForm> forms;
    for (unsigned i = 0; i < dims_.size(); ++i)
      forms.push_back({dtypes_[i], dims_[i]});
    return forms;
  }
  void result(ir::DType dtype, Dims dims) {
    result_dtypes_.push_back(dtype);
    result_dims_.push_back(std::move(dims));
  }
  llvm::Expected<std::vector<Tensor>> run(ir::Program &program, const rules::ResolvedOp &op,
                                          ir::AttrsId attrs, llvm::ArrayRef<rules::Slot> slots,
                                          Domain domain, const Draws &draws) const {
    auto ready = prepare(program, op, attrs, slots, dtypes_, dims_, result_dtypes_, result_dims_);
    if (!ready)
      return ready.takeError();
    llvm::SmallVector<TensorBlock, 6> args;
    for (unsigned i = 0; i < tensors_.size(); ++i)
      args.push_back({tensors_[i], dtypes_[i], &dims_[i]});
    std::vector<Tensor> out;
    for (unsigned r = 0; r < result_dims_.size(); ++r)
      out.push_back(Tensor::make(result_dtypes_[r], result_dims_[r], domain));
    if (llvm::Error failed = (*ready)->run(args, {}, out, domain, draws))
      return llvm::Expected<std::vector<Tensor>>(std::move(failed));
    return out;
  }

private:
  llvm::SmallVector<const Tensor *, 6> tensors_;
  std::vector<Dims> dims_, result_dims_;
  llvm::SmallVector<ir::DType, 6> dtypes_, result_dtypes_;
};

// What the results at the coordinates come to: a list, a sum, or what all have in common.
void collect(Meaning &into, const Distribution &to, const Grid &per_rank,
             const Grid::Coordinates &at, AxisSet all, Tensor result) {
  Tensor &piece = into.pieces[piece_at(per_rank, at)];
  AxisSet left = all - to.per_rank_axes();
  if (is_first(at, left)) {
    piece = std::move(result);
    return;
  }
  AxisSet pending = to.type().of(Kind::Partial) - to.type().zero();
  if (is_first(at, left - pending))
    combine_into(piece, result, ir::Combiner::Sum);
}

} // namespace

llvm::Expected<Meanings> Reference::equation(const ResolvedInst &seen, uint64_t draws,
                                             const Meanings &operands,
                                             llvm::ArrayRef<rules::Slot> slots, ir::AttrsId attrs) {
  const ir::Mesh &mesh = seen.app().mesh();
  const unsigned results = seen.inst().result_count;
  AxisSet all;
  for (const Meaning &meaning : operands)
    all |= meaning.per_rank;
  Meanings made;
  std::vector<Grid> grids;
  AxisSet drawn;
  for (unsigned r = 0; r < results; ++r) {
    if (!seen.result(r))
      return make_error("the shape of a result is not known");
    all |= seen.result(r)->per_rank_axes();
    drawn |= seen.result(r)->per_rank_axes();
    grids.push_back(seen.result(r)->per_rank_grid());
    made.push_back({seen.result(r)->per_rank_axes(),
                    std::vector<Tensor>(static_cast<size_t>(grids.back().size()))});
  }
  Grid streams(mesh, drawn), every(mesh, all);
  CoordinateOperands pieces(seen, operands, all);
  for (int64_t c = 0; c < every.size(); ++c) {
    Grid::Coordinates at = every.coordinates(c);
    OpCall call;
    for (unsigned i = 0; i < operands.size(); ++i)
      call.operand(pieces.at(i, at), seen.from(i));
    for (unsigned r = 0; r < results; ++r) {
      Dims dims = seen.result(r)->whole();
      if (seen.result(r)->open()) {
        std::optional<Dims> found = row_dims(program_, seen.app(), call.forms(), r);
        if (!found)
          return make_error("extents that only data tell do not follow from those of the operands");
        dims = std::move(*found);
      }
      call.result(seen.result(r)->dtype(), std::move(dims));
    }
    uint64_t stream = drawn ? 1 + static_cast<uint64_t>(streams.position(at)) : 0;
    llvm::Expected<std::vector<Tensor>> out =
        call.run(program_, seen.op(), attrs, slots, domain_, {seed_, draws, stream});
    if (!out)
      return out.takeError();
    for (unsigned r = 0; r < results; ++r)
      collect(made[r], *seen.result(r), grids[r], at, all, std::move((*out)[r]));
  }
  return made;
}

namespace {

// The call of `vjp.OP.OPERAND` for a call of OP: the gradients that there are, then its operands.
struct DerivedCall {
  ir::OpNameId spelling;
  ir::AttrsId attrs;
  llvm::SmallVector<rules::Slot, 8> slots;
};

DerivedCall derived_call(ir::Program &program, const ResolvedInst &seen, const Meanings &results,
                         std::string_view operand, std::optional<int64_t> member) {
  DerivedCall call;
  std::string name =
      rules::derivative_name(program.op_name(seen.inst().op), {operand.data(), operand.size()});
  call.spelling = ir::OpNameId{program.strings.add(name).index};
  ir::AttrDict dict = program.attrs[seen.inst().attrs];
  if (member) {
    dict.attrs.push_back({program.strings.add("member"), ir::AttrValue::integer(*member)});
    ir::sort_canonically(dict, program.strings);
  }
  call.attrs = program.attrs.add(std::move(dict));
  rules::Slot given;
  given.form = results.size() == 1 ? rules::Slot::Form::Tensor : rules::Slot::Form::List;
  uint64_t present = 0;
  for (size_t r = 0; r < results.size(); ++r)
    if (!results[r].pieces.empty()) {
      ++given.count;
      present |= uint64_t(1) << r;
    }
  given.literal = ir::AttrValue::integer(static_cast<int64_t>(present));
  if (results.size() == 1)
    given.literal = {};
  call.slots.push_back(given);
  for (rules::Slot slot : seen.app().slots) {
    slot.first = static_cast<uint32_t>(slot.first + given.count);
    call.slots.push_back(slot);
  }
  return call;
}

// What the gradient of a result is at a coordinate: that of its piece; where only the first
// coordinate gave the result, others got none.
Tensor gradient_at(const Distribution &made, const Meaning &gradient, const Grid::Coordinates &at,
                   AxisSet all) {
  const Tensor &piece = gradient.pieces[piece_at(made.per_rank_grid(), at)];
  AxisSet pending = made.type().of(Kind::Partial) - made.type().zero();
  if (is_first(at, all - made.per_rank_axes() - pending))
    return piece;
  return zeros_like(piece, piece.dims);
}

} // namespace

llvm::Expected<Meaning> Reference::derivative(const ResolvedInst &seen, uint64_t draws,
                                              const Meanings &operands, const Meanings &results,
                                              unsigned arg, std::string_view operand,
                                              std::optional<int64_t> member) {
  const ir::Mesh &mesh = seen.app().mesh();
  Meanings given = results;
  AxisSet all, drawn;
  for (const Meaning &meaning : operands)
    all |= meaning.per_rank;
  for (unsigned r = 0; r < results.size(); ++r) {
    drawn |= seen.result(r)->per_rank_axes();
    // A list of results is one gradient: of those that have none it is zero.
    bool list = seen.op().row->equation.equation.results[0].list;
    if (list && given[r].pieces.empty()) {
      if (seen.result(r)->open())
        return make_error("a result without a gradient has extents that only data tell");
      given[r].per_rank = seen.result(r)->per_rank_axes();
      for (int64_t p = 0; p < seen.result(r)->per_rank_grid().size(); ++p)
        given[r].pieces.push_back(
            Tensor::make(seen.result(r)->dtype(), seen.result(r)->whole(), domain_));
    }
  }
  all |= drawn;
  DerivedCall derived = derived_call(program_, seen, given, operand, member);
  const rules::ResolvedOp &op = rules_.resolve(derived.spelling);
  Grid streams(mesh, drawn), every(mesh, all), own(mesh, operands[arg].per_rank);
  CoordinateOperands pieces(seen, operands, all);
  Meaning made{operands[arg].per_rank, {}};
  for (const Tensor &piece : operands[arg].pieces)
    made.pieces.push_back(zeros_like(piece, piece.dims));
  for (int64_t c = 0; c < every.size(); ++c) {
    Grid::Coordinates at = every.coordinates(c);
    if (!pieces.counts(arg, at))
      continue;
    std::vector<Tensor> gradients;
    for (unsigned r = 0; r < given.size(); ++r)
      if (!given[r].pieces.empty())
        gradients.push_back(gradient_at(*seen.result(r), given[r], at, all));
    OpCall call;
    for (const Tensor &gradient : gradients)
      call.operand(&gradient, std::nullopt);
    for (unsigned i = 0; i < operands.size(); ++i)
      call.operand(pieces.at(i, at), seen.from(i));
    Tensor &sum = made.pieces[piece_at(own, at)];
    call.result(sum.dtype, sum.dims);
    uint64_t stream = drawn ? 1 + static_cast<uint64_t>(streams.position(at)) : 0;
    llvm::Expected<std::vector<Tensor>> out =
        call.run(program_, op, derived.attrs, derived.slots, domain_, {seed_, draws, stream});
    if (!out)
      return out.takeError();
    combine_into(sum, out->front(), ir::Combiner::Sum);
  }
  return made;
}

llvm::Expected<TensorSizes::Lengths>
Reference::stated_lengths(const ResolvedInst &seen, BodySite site, llvm::ArrayRef<Meaning> operands,
                          llvm::StringRef key, const Grid::Coordinates &at) const {
  for (const rules::Slot &slot : seen.app().slots) {
    if (!slot.name.valid() || slot.count == 0 || program_.strings[slot.name] != key)
      continue;
    const ir::Mesh &mesh = seen.app().mesh();
    if (sizes_)
      if (const auto *known = sizes_->find(seen.values()[slot.first], site.path))
        return (*known)[static_cast<size_t>(Grid(mesh, mesh.typed_axes()).position(at))];
    const Meaning &meaning = operands[slot.first];
    std::optional<TensorSizes::Lengths> numbers;
    if (!meaning.pieces.empty())
      numbers = whole_numbers(meaning.pieces[piece_at(Grid(mesh, meaning.per_rank), at)]);
    if (!numbers)
      return make_error(fmt::format("what {} says is not known", key.str()));
    return *numbers;
  }
  return TensorSizes::Lengths();
}

llvm::Expected<Meanings> Reference::transition(const ResolvedInst &seen, BodySite site,
                                               Meanings operands) {
  rules::Outcome ignored;
  std::optional<rules::TransitionCall> call = rules::read_call(seen.app(), ignored);
  SPMD_CHECK(call, "a call that was checked");
  llvm::SmallVector<uint32_t, 2> tensors = rules::operands_of(seen.app());
  Meanings made(seen.inst().result_count);
  for (size_t i = 0; i < tensors.size() && i < made.size(); ++i) {
    uint32_t operand = tensors[i];
    if (!seen.from(operand) || !seen.result(static_cast<unsigned>(i)))
      return make_error("the shape of an operand or a result is not known");
    if (operands[operand].pieces.empty())
      return make_error("an operand has no data");
    auto said_to = [&](llvm::StringRef key, const Grid::Coordinates &at) {
      return stated_lengths(seen, site, operands, key, at);
    };
    MovedValue value{
        seen.app(), *call, operand, *seen.from(operand), *seen.result(static_cast<unsigned>(i)),
        said_to};
    llvm::Expected<Meaning> result = moved(value, operands[operand]);
    if (!result)
      return result.takeError();
    Rational factor = factor_of(value);
    for (Tensor &piece : result->pieces) {
      multiply(piece, factor.first, factor.second);
      piece.dtype = value.to.dtype();
      round_cells(piece, domain_);
    }
    made[i] = std::move(*result);
  }
  return made;
}

} // namespace spmd::runtime
