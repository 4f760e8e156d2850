// The walk over the instructions, what ranks send each other, and what takes, joins or writes parts
// of a dimension.
#include "checker/gradual/micro_batches/rank_interpreter.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/gradual/sent/halo_windows.h"
#include "checker/program_queries.h"

#include "rules/factors/factors.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::checker {

using Id = Contents::Id;
using ir::InstId;
using ir::ValueId;
using rules::TransitionOp;

constexpr int64_t kMostCells = 256; // of one value
constexpr int64_t kLeastParts = 2;
constexpr uint64_t kMostSteps = 4'000'000; // instructions times ranks
constexpr int64_t kMostRanks = 64;

RankInterpreter::RankInterpreter(ir::Program &program, const CheckResult &result, ir::MeshId mesh,
                                 ir::AxisId axis)
    : program_(program), result_(result), mesh_(mesh), axis_(axis),
      ranks_(static_cast<unsigned>(program.meshes[mesh][axis].size())), rules_(program) {}

bool RankInterpreter::can_follow(const ir::Program &program, ir::MeshId mesh, ir::AxisId axis) {
  const int64_t ranks = program.meshes[mesh][axis].size();
  return ranks >= 2 && ranks <= kMostRanks &&
         uint64_t(program.main.size()) * uint64_t(ranks) <= kMostSteps;
}

std::optional<int64_t> RankInterpreter::extent(ValueId value, unsigned dim) const {
  return extent_of(program_, result_.shapes[value.index], dim);
}

size_t RankInterpreter::rank_of(ValueId value) const {
  return checker::dimension_count(program_, result_.shapes[value.index]);
}

bool RankInterpreter::is_equal(ValueId value) const {
  const ir::TypeId id = result_.types[value.index];
  const ir::Type *type = id.valid() ? &program_.types[id] : nullptr;
  return type && type->mesh() == mesh_ && type->same_on_all_ranks().contains(axis_);
}

bool RankInterpreter::is_discrete(ValueId value) const {
  const ir::ShapeId id = result_.shapes[value.index];
  return id.valid() && program_.shapes[id].dtype != ir::DType::Unknown &&
         !ir::differentiable(program_.shapes[id].dtype);
}

Id RankInterpreter::flat(const Cells &cells) {
  Id all = cells.of[0];
  for (Id each : llvm::drop_begin(cells.of)) {
    if (each == all)
      continue;
    // Numbers in several places are no sum of them.
    const bool numbers = contents_.known(each).value_or(0) || contents_.known(all).value_or(0);
    all = numbers ? Contents::kOpen : contents_.sum(all, each);
  }
  return all;
}

RankInterpreter::Cells RankInterpreter::compact(Cells cells) const {
  if (llvm::all_of(cells.of, [&](Id each) { return each == cells.of[0]; }))
    return uniform(cells.of[0]);
  return cells;
}

void RankInterpreter::run() {
  cells_.assign(ranks_, std::vector<Cells>(program_.values.size()));
  pass();
  choose_sources();
  if (sources_.empty())
    return;
  looking_ = false;
  cells_.assign(ranks_, std::vector<Cells>(program_.values.size()));
  pass();
}

void RankInterpreter::pass() {
  for (const ir::Param &param : program_.params)
    for (unsigned rank = 0; rank < ranks_; ++rank)
      cells_[rank][param.value.index].given = is_equal(param.value);
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
    step(InstId{i});
}

// A rank that takes one part after the other goes through it; of another tensor, each takes its
// own.
void RankInterpreter::choose_sources() {
  llvm::SmallVector<uint32_t, 8> dropped;
  for (auto &[value, source] : sources_) {
    std::map<unsigned, int64_t> by_rank;
    int64_t most = 0;
    for (const auto &[rank, part] : source.taken)
      most = std::max(most, ++by_rank[rank]);
    if (!source.fits || source.parts < kLeastParts || most < kLeastParts)
      dropped.push_back(value);
  }
  for (uint32_t value : dropped)
    sources_.erase(value);
}

// Notes that a rank takes a part. False if it is not followed.
bool RankInterpreter::take(const Step &step, uint32_t operand, unsigned dim, int64_t length,
                           int64_t part) {
  const ValueId value = step.operands[operand];
  const std::optional<int64_t> all = extent(value, dim);
  if (!all || length <= 0 || *all % length != 0 || *all / length > kMostCells)
    return false;
  if (!looking_) {
    const auto at = sources_.find(value.index);
    return at != sources_.end() && at->second.dim == dim && at->second.length == length;
  }
  auto [at, added] = sources_.try_emplace(value.index);
  Source &source = at->second;
  if (added)
    source = {dim, length, *all / length, true, false, step.id, operand, {}};
  source.fits &= source.dim == dim && source.length == length;
  source.taken.insert({step.rank, part});
  return false;
}

void RankInterpreter::step(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  list_.read(program_, inst.operands);
  const auto args = list_.args(result_.types, result_.shapes);
  llvm::SmallVector<rules::ResultClaim, 2> claims;
  for (uint32_t r = 0; r < inst.result_count; ++r)
    claims.push_back({result_.shapes[inst.result(r).index], {}, {}});
  const rules::Application app{
      program_, rules_.resolve(inst.op), inst.attrs, inst.context, list_.slots, args, claims};
  if (program_.contexts[inst.context].mesh != mesh_ || inst.result_count == 0)
    return;
  if (app.op.form == rules::OpForm::Transition && list_.values.size() == inst.result_count &&
      rules::communicated_axes(app).contains(axis_))
    return send(id, app);
  for (unsigned rank = 0; rank < ranks_; ++rank)
    set(rank, inst, made({id, inst, app, list_.values, rank}));
  if (!looking_ && app.op.form == rules::OpForm::Equation && app.op.row &&
      !app.op.row->chooses.empty())
    note_left(id);
}

void RankInterpreter::set(unsigned rank, const ir::Inst &inst, Results results) {
  for (uint32_t r = 0; r < inst.result_count && r < results.size(); ++r) {
    Cells &cells = results[r];
    cells.given &= cells.uniform() && cells.of[0] == Contents::kFree && is_equal(inst.result(r));
    cells_[rank][inst.result(r).index] = std::move(cells);
  }
}

// What nobody sends to is zero.
llvm::SmallVector<RankInterpreter::Cells, 8> RankInterpreter::moved(const rules::Application &app,
                                                                    ValueId from) const {
  const ir::AttrValue *pairs = app.attr("perm");
  if (!pairs || pairs->form != ir::AttrForm::List)
    return llvm::SmallVector<Cells, 8>(ranks_, uniform(Contents::kOpen));
  llvm::SmallVector<Cells, 8> made(ranks_, uniform(Contents::kZero));
  for (const ir::AttrValue &item : program_.lists[pairs->as<ir::AttrListId>()].items) {
    const auto pair = rules::numbers_of(app, item);
    if (!pair || pair->size() != 2 ||
        llvm::any_of(*pair, [&](int64_t rank) { return rank < 0 || rank >= ranks_; }))
      return llvm::SmallVector<Cells, 8>(ranks_, uniform(Contents::kOpen));
    made[static_cast<size_t>((*pair)[1])] = cells_[static_cast<size_t>((*pair)[0])][from.index];
  }
  return made;
}

// The sum over all ranks.
RankInterpreter::Cells RankInterpreter::reduced(ValueId from) {
  Cells all = cells_[0][from.index];
  for (unsigned rank = 1; rank < ranks_; ++rank) {
    const Cells &other = cells_[rank][from.index];
    if (!all.uniform() && !other.uniform() &&
        (all.dim != other.dim || all.of.size() != other.of.size())) {
      all = uniform(contents_.sum(flat(all), flat(other)));
      continue;
    }
    Cells sum = all.uniform() ? other : all;
    for (size_t c = 0; c < sum.of.size(); ++c)
      sum.of[c] = contents_.sum(all.of[all.uniform() ? 0 : c], other.of[other.uniform() ? 0 : c]);
    all = std::move(sum);
  }
  return compact(all);
}

void RankInterpreter::send(InstId id, const rules::Application &app) {
  const ir::Inst &inst = program_.insts[id];
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    const ValueId from = list_.values[r], to = inst.result(r);
    llvm::SmallVector<Cells, 8> made(ranks_, uniform(Contents::kOpen));
    if (app.op.transition == TransitionOp::CollectivePermute) {
      made = moved(app, from);
    } else if (app.op.transition == TransitionOp::AllReduce) {
      made.assign(ranks_, reduced(from));
    } else {
      Id all = Contents::kZero;
      bool known = false;
      for (unsigned rank = 0; rank < ranks_; ++rank) {
        all = contents_.sum(all, flat(cells_[rank][from.index]));
        known |= !cells_[rank][from.index].uniform();
      }
      // Which rank's part of it a rank gets is not followed.
      const bool free = all == Contents::kFree || all == Contents::kZero;
      made.assign(ranks_, uniform(free && !known ? all : Contents::kOpen));
    }
    for (unsigned rank = 0; rank < ranks_; ++rank) {
      made[rank].given = false;
      cells_[rank][to.index] = made[rank];
    }
  }
}

// Of all that the operands are made of.
RankInterpreter::Results RankInterpreter::unknown(const Step &step) {
  llvm::SmallVector<Id, 4> of;
  for (size_t i = 0; i < step.operands.size(); ++i)
    of.push_back(flat(at(step, i)));
  // The backward of a loop is linear in the gradients that it takes: of zeros it makes zeros.
  const bool vanishes =
      step.app.op.form == rules::OpForm::Call && llvm::is_contained(of, Contents::kZero);
  return Results(step.inst.result_count,
                 uniform(vanishes ? Contents::kOpen : contents_.function(of)));
}

RankInterpreter::Results RankInterpreter::made(const Step &step) {
  const rules::Application &app = step.app;
  if (app.op.boundary == rules::Boundary::AxisIndex) {
    const bool ours = rules::named_axes(app) == ir::AxisSet(axis_);
    return {uniform(ours ? contents_.number(step.rank) : Contents::kFree)};
  }
  // What a branch does is chosen by its first operand.
  if (app.op.boundary == rules::Boundary::Cond || app.op.boundary == rules::Boundary::While)
    for (size_t i = 0; i < step.operands.size(); ++i)
      if (const Id id = flat(at(step, i)); contents_.known(id).value_or(0) || id == Contents::kOpen)
        return Results(step.inst.result_count, uniform(Contents::kOpen));
  if ((app.op.form == rules::OpForm::Boundary || app.op.form == rules::OpForm::Transition) &&
      !step.operands.empty() && step.operands.size() >= step.inst.result_count) {
    Results same;
    for (uint32_t r = 0; r < step.inst.result_count; ++r) {
      const Cells &from = at(step, r);
      bool fits = rank_of(step.operands[r]) == rank_of(step.inst.result(r)) &&
                  (from.uniform() ||
                   extent(step.operands[r], from.dim) == extent(step.inst.result(r), from.dim));
      same.push_back(fits ? from : uniform(flat(from)));
    }
    return same;
  }
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return unknown(step);
  const auto uses = rules::row_uses(app);
  if (uses.size() != 1 || !uses[0].row)
    return unknown(step);
  const rules::Application bound = app.bound_to(uses[0]);
  const rules::FactorsRule factors = uses[0].row->factors;
  std::optional<Cells> special;
  if (factors == rules::slice_factors)
    special = sliced(step, bound);
  else if (factors == rules::cat_factors)
    special = joined(step, bound);
  else if (factors == rules::pad_factors)
    special = padded(step, bound);
  else if (factors == rules::slice_scatter_factors)
    special = written(step, bound);
  else if (uses[0].row->constant != rules::OpDef::Constant::No)
    special = constant(step, bound);
  else if (app.op.alias && app.op.alias->factors == rules::lax_scatter_factors &&
           (special = row_set(step, bound)))
    ; // and what scatters more than a row, by its equation
  else
    return by_equation(step, bound);
  return {special ? *special : uniform(Contents::kOpen)};
}

// Where a slice begins in a dimension: an attribute or a plain number says so, or a tensor, as
// those from operand `first` on.
std::optional<Id> RankInterpreter::start(const Step &step, const rules::Application &bound,
                                         size_t first, unsigned dim) {
  if (bound.op.variant() != rules::Variant::StartOperands) {
    const auto known = first_taken(bound, dim);
    return known ? std::optional(contents_.number(*known)) : std::nullopt;
  }
  const size_t place = first + dim;
  if (place >= step.app.slots.size())
    return std::nullopt;
  const rules::Slot &slot = step.app.slots[place];
  if (slot.form == rules::Slot::Form::Tensor)
    return flat(at(step, slot.first));
  const auto plain =
      slot.form == rules::Slot::Form::Literal ? number_of(slot.literal) : std::optional<double>();
  return plain ? std::optional(contents_.number(static_cast<int64_t>(*plain))) : std::nullopt;
}

std::optional<RankInterpreter::Cells> RankInterpreter::sliced(const Step &step,
                                                              const rules::Application &bound) {
  if (step.operands.empty())
    return std::nullopt;
  const ValueId from = step.operands[0], to = step.inst.result(0);
  const Cells &cells = at(step, 0);
  if (rank_of(from) != rank_of(to))
    return uniform(flat(cells));
  std::optional<unsigned> dim;
  for (unsigned d = 0; d < rank_of(from); ++d)
    if (extent(from, d) != extent(to, d)) {
      if (dim) // of several dimensions at once: which rows of it is not followed
        return uniform(flat(cells));
      dim = d;
    }
  if (!dim)
    return cells;
  if (!cells.uniform() && cells.dim != *dim)
    return cells;
  return part(step, bound, *dim);
}

RankInterpreter::Cells RankInterpreter::part(const Step &step, const rules::Application &bound,
                                             unsigned dim) {
  const Cells &cells = at(step, 0);
  const auto all = extent(step.operands[0], dim), length = extent(step.inst.result(0), dim);
  const auto where = start(step, bound, 1, dim);
  const auto known = where ? contents_.known(*where) : std::nullopt;
  const bool free = cells.uniform() && cells.of[0] == Contents::kFree;
  if (!all || !length || *length <= 0 || !known) {
    const bool hidden = where == Contents::kOpen && sources_.count(step.operands[0].index);
    if (cells.uniform() && !hidden)
      return uniform(cells.of[0]);
    return uniform(where && *where != Contents::kOpen ? flat(cells) : Contents::kOpen);
  }
  const int64_t begin = std::clamp<int64_t>(*known, 0, *all - *length);
  if (free) {
    const int64_t index = begin / *length;
    if (cells.given && begin % *length == 0 && take(step, 0, dim, *length, index))
      return uniform(contents_.part(step.operands[0].index, index));
    return uniform(Contents::kFree);
  }
  if (cells.uniform())
    return uniform(cells.of[0]);
  const int64_t stretch = *all / static_cast<int64_t>(cells.of.size());
  if (begin % stretch != 0 || *length % stretch != 0)
    return uniform(flat(cells));
  Cells taken{{}, dim, false};
  taken.of.clear();
  for (int64_t c = begin / stretch; c < (begin + *length) / stretch; ++c)
    taken.of.push_back(cells.of[static_cast<size_t>(c)]);
  return compact(taken);
}

// Tensors one behind the other. A tensor that a loop goes through has zeros behind it where it is
// made as long as the loop.
std::optional<RankInterpreter::Cells> RankInterpreter::joined(const Step &step,
                                                              const rules::Application &bound) {
  if (step.operands.empty())
    return std::nullopt;
  const auto dims = rules::placed_dims(bound, rules::DefaultDim::First, rank_of(step.operands[0]));
  const auto all = dims && dims->size() == 1 ? extent(step.inst.result(0), dims->front())
                                             : std::optional<int64_t>();
  if (!all || *all > kMostCells) {
    Id sum = Contents::kZero;
    for (size_t i = 0; i < step.operands.size(); ++i)
      sum = contents_.sum(sum, flat(at(step, i)));
    return uniform(sum);
  }
  const unsigned dim = dims->front();
  auto is_zero = [&](size_t i) {
    return at(step, i).uniform() && at(step, i).of[0] == Contents::kZero;
  };
  Cells cells{{}, dim, false};
  cells.of.clear();
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const Cells &own = at(step, i);
    const auto length = extent(step.operands[i], dim);
    if (!length)
      return std::nullopt;
    bool others = step.operands.size() > 1;
    for (size_t j = 0; j < step.operands.size(); ++j)
      others &= j == i || is_zero(j);
    const bool across = !own.uniform() && own.dim != dim;
    const int64_t stretch =
        own.uniform() || across ? *length : *length / static_cast<int64_t>(own.of.size());
    for (int64_t k = 0; k < *length; ++k) {
      Id id = across ? flat(own) : own.of[own.uniform() ? 0 : static_cast<size_t>(k / stretch)];
      if (own.given && others && take(step, static_cast<uint32_t>(i), dim, 1, k))
        id = contents_.part(step.operands[i].index, k);
      cells.of.push_back(id);
    }
  }
  return compact(cells);
}

// Zeros before and behind, in one dimension.
std::optional<RankInterpreter::Cells> RankInterpreter::padded(const Step &step,
                                                              const rules::Application &bound) {
  if (step.operands.empty())
    return std::nullopt;
  const Cells &own = at(step, 0);
  const ValueId from = step.operands[0], to = step.inst.result(0);
  const ir::AttrValue *config = bound.attr("padding_config");
  if (!config || config->form != ir::AttrForm::List || rank_of(from) != rank_of(to))
    return uniform(own.uniform() && own.of[0] == Contents::kFree ? Contents::kFree
                                                                 : Contents::kOpen);
  llvm::ArrayRef<ir::AttrValue> items = program_.lists[config->as<ir::AttrListId>()].items;
  std::optional<unsigned> dim;
  rules::Numbers by;
  for (unsigned d = 0; d < items.size(); ++d) {
    const auto numbers = rules::numbers_of(bound, items[d]);
    if (!numbers || numbers->size() != 3)
      return std::nullopt;
    if (llvm::all_of(*numbers, [](int64_t each) { return each == 0; }))
      continue;
    if (dim || (*numbers)[0] < 0 || (*numbers)[1] < 0 || (*numbers)[2] != 0)
      return uniform(flat(own));
    dim = d, by = *numbers;
  }
  const auto length = dim ? extent(from, *dim) : std::optional<int64_t>(),
             all = dim ? extent(to, *dim) : std::optional<int64_t>();
  if (!dim || (!own.uniform() && own.dim != *dim))
    return own;
  if (!length || !all || *all > kMostCells)
    return uniform(flat(own));
  const rules::Slot *value = bound.slots.size() > 1 ? &bound.slots[1] : nullptr;
  Id around = Contents::kZero;
  if (value && value->form == rules::Slot::Form::Tensor)
    around = flat(at(step, value->first));
  else if (value && !rules::is_zero(*value))
    around = Contents::kFree;
  Cells cells{{}, *dim, false};
  cells.of.assign(static_cast<size_t>(*all), around);
  for (int64_t k = 0; k < *length; ++k) {
    const auto count = static_cast<int64_t>(own.of.size());
    Id id = own.of[own.uniform() ? 0 : static_cast<size_t>(k * count / *length)];
    if (own.given && take(step, 0, *dim, 1, k))
      id = contents_.part(from.index, k);
    cells.of[static_cast<size_t>(by[0] + k)] = id;
  }
  return compact(cells);
}

// A part of a tensor that is written over.
std::optional<RankInterpreter::Cells> RankInterpreter::written(const Step &step,
                                                               const rules::Application &bound) {
  if (step.operands.size() < 2)
    return std::nullopt;
  const ValueId into = step.operands[0], update = step.operands[1];
  const Cells &own = at(step, 0), &other = at(step, 1);
  std::optional<unsigned> dim;
  for (unsigned d = 0; d < rank_of(into); ++d)
    if (extent(into, d) != extent(update, d)) {
      if (dim)
        return uniform(contents_.sum(flat(own), flat(other)));
      dim = d;
    }
  if (!dim)
    return other;
  const auto all = extent(into, *dim), length = extent(update, *dim);
  const auto where = start(step, bound, 2, *dim);
  const auto known = where ? contents_.known(*where) : std::nullopt;
  if (own.uniform() && other.uniform() && own.of == other.of)
    return uniform(own.of[0]);
  if (!all || !length || !known || *length <= 0 || *all < *length)
    return std::nullopt;
  return overwritten(step, *dim, std::clamp<int64_t>(*known, 0, *all - *length), *length, other);
}

// The first operand with `length` elements of a dimension, from `begin` on, written over.
std::optional<RankInterpreter::Cells> RankInterpreter::overwritten(const Step &step, unsigned dim,
                                                                   int64_t begin, int64_t length,
                                                                   const Cells &other) const {
  const Cells &own = at(step, 0);
  const auto all = extent(step.operands[0], dim);
  if (!all || *all % length != 0 || *all / length > kMostCells || begin % length != 0 ||
      !other.uniform() ||
      !(own.uniform() || (own.dim == dim && static_cast<int64_t>(own.of.size()) == *all / length)))
    return std::nullopt;
  Cells cells{{}, dim, false};
  cells.of.clear();
  for (int64_t c = 0; c < *all / length; ++c)
    cells.of.push_back(c == begin / length ? other.of[0]
                                           : own.of[own.uniform() ? 0 : static_cast<size_t>(c)]);
  return compact(cells);
}

// One row of a tensor that is set, as `x.at[i].set(y)` does in JAX: a scatter of one index whose
// window is the whole update. None: it is another scatter, or the row is not known.
std::optional<RankInterpreter::Cells> RankInterpreter::row_set(const Step &step,
                                                               const rules::Application &bound) {
  const ir::AttrValue *numbers = bound.attr("dimension_numbers");
  if (step.operands.size() != 3 || !numbers)
    return std::nullopt;
  const auto dims = [&](llvm::StringRef key, unsigned place) {
    const auto part = rules::attr_part(bound, *numbers, key, place);
    return part ? rules::numbers_of(bound, *part) : std::nullopt;
  };
  const auto window = dims("update_window_dims", 0), inserted = dims("inserted_window_dims", 1),
             indexed = dims("scatter_dims_to_operand_dims", 2);
  const ValueId into = step.operands[0], update = step.operands[2];
  if (!window || !inserted || !indexed || indexed->size() != 1 || *inserted != *indexed ||
      window->size() != rank_of(update) || rank_of(update) + 1 != rank_of(into) ||
      (*indexed)[0] < 0)
    return std::nullopt;
  const auto dim = static_cast<unsigned>((*indexed)[0]);
  const auto all = extent(into, dim), row = contents_.known(flat(at(step, 1)));
  if (!all || !row)
    return std::nullopt;
  if (*row < 0 || *row >= *all) // nothing is written there
    return at(step, 0);
  return overwritten(step, dim, *row, 1, at(step, 2));
}

std::optional<RankInterpreter::Cells> RankInterpreter::constant(const Step &step,
                                                                const rules::Application &bound) {
  const rules::OpDef &row = *bound.op.row;
  if (row.constant == rules::OpDef::Constant::Zero)
    return uniform(Contents::kZero);
  if (bound.op.variant() == rules::Variant::Ones)
    return uniform(contents_.number(1));
  const auto dim = rules::number_attr(bound, {"dimension"}).value_or(0);
  if (bound.op.variant() == rules::Variant::Iota && dim >= 0) {
    const auto length = extent(step.inst.result(0), static_cast<unsigned>(dim));
    if (!length || *length > kMostCells || *length == 0)
      return uniform(Contents::kOpen);
    Cells cells{{}, static_cast<unsigned>(dim), false};
    cells.of.clear();
    for (int64_t k = 0; k < *length; ++k)
      cells.of.push_back(contents_.number(k));
    return compact(cells);
  }
  const ir::AttrValue *fill = bound.attr("fill_value");
  const auto number = fill ? number_of(*fill) : std::optional<double>();
  if (number && *number == static_cast<double>(static_cast<int64_t>(*number)))
    return uniform(contents_.number(static_cast<int64_t>(*number)));
  return uniform(Contents::kFree);
}

} // namespace spmd::checker
