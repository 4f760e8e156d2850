// Which gradients there are, what the derivative is for each, and how the two differ.
#include "runtime/judge/recorded_gradients.h"

#include "runtime/judge/gradient_carriers.h"

#include "rules/shards/remesh.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace spmd::runtime {

using ir::InstId;
using ir::ValueId;

namespace {

// Of the largest element of a gradient: what separates two ways to compute it in double, and
// constants that a framework stored in single precision.
constexpr double kExplained = 0x1p-20;
// Of the largest gradient of all: what is below it is zero but for rounding.
constexpr double kZero = 0x1p-40;
// By how much inputs are moved to see how far rounding may carry, and what is then explained by it.
constexpr double kMoved = 0x1p-40;
constexpr double kOfMoved = 4;

struct Candidate {
  ValueId value, of;
  bool stepped = false;  // it is what the optimizer reads: losses are combined
  bool any_root = false; // of a `step` that reads what comes from no loss: it is held against all
  std::string left;      // why it is not compared; empty: it is
};

std::vector<double> numbers_of(const Meaning &meaning) {
  std::vector<double> numbers;
  for (const Tensor &piece : meaning.pieces)
    piece.visit([&](const auto &cells) {
      using T = typename std::decay_t<decltype(cells)>::value_type;
      if constexpr (std::is_same_v<T, double>)
        numbers.insert(numbers.end(), cells.begin(), cells.end());
      else if constexpr (std::is_same_v<T, Complex>)
        for (const T &cell : cells)
          numbers.push_back(cell.real()), numbers.push_back(cell.imag());
    });
  return numbers;
}

double largest(llvm::ArrayRef<double> numbers) {
  double most = 0;
  for (double number : numbers)
    most = std::max(most, std::isnan(number) ? std::numeric_limits<double>::infinity()
                                             : std::abs(number));
  return most;
}

// Positions count both numbers of a complex element.
double apart(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b))
    return a == b || (std::isnan(a) && std::isnan(b)) ? 0 : std::numeric_limits<double>::infinity();
  return std::abs(a - b);
}

std::string place_in(const Meaning &like, size_t number) {
  for (const Tensor &piece : like.pieces) {
    size_t size = static_cast<size_t>(piece.size()) * (piece.is_complex() ? 2 : 1);
    if (number >= size) {
      number -= size;
      continue;
    }
    auto element = static_cast<int64_t>(number / (piece.is_complex() ? 2 : 1));
    llvm::SmallVector<int64_t, 5> place(piece.dims.size());
    for (size_t i = piece.dims.size(); i-- > 0;) {
      place[i] = element % piece.dims[i];
      element /= piece.dims[i];
    }
    return fmt::format("[{}]", fmt::join(place, ", "));
  }
  return "";
}

// c where a = c b but for `allowed`; none: they differ in another way.
std::optional<double> factor_between(llvm::ArrayRef<double> a, llvm::ArrayRef<double> b,
                                     double allowed) {
  size_t at = 0;
  for (size_t i = 0; i < b.size(); ++i)
    if (std::abs(b[i]) > std::abs(b[at]))
      at = i;
  if (b.empty() || b[at] == 0)
    return std::nullopt;
  double factor = a[at] / b[at];
  for (size_t i = 0; i < b.size(); ++i)
    if (!(std::abs(a[i] - factor * b[i]) <= allowed * std::max(1.0, std::abs(factor))))
      return std::nullopt;
  return factor;
}

std::string print_factor(double factor) {
  double tenths = std::round(factor * 10) / 10;
  return tenths != 0 && std::abs(factor - tenths) < 1e-5 * std::abs(tenths)
             ? fmt::format("{:.1f}", tenths)
             : fmt::format("{:.4g}", factor);
}

class Comparison {
public:
  Comparison(Reference &reference, ReferenceRun &run, const Meanings &params,
             const llvm::DenseMap<uint32_t, Meaning> &replaced, llvm::ArrayRef<LossRoot> roots)
      : reference_(reference), program_(reference.program()), checked_(reference.checked()),
        run_(run), params_(params), replaced_(replaced), roots_(roots),
        unseen_(program_.lacks(ir::Missing::Derivatives)) {}

  std::vector<RecordedGradient> compare() {
    find_origins();
    find_candidates();
    differentiate_gathers(run_);
    for (const Candidate &each : candidates_)
      of_.push_back(each.of);
    derive(run_, wanted_);
    for (size_t c = 0; c < candidates_.size(); ++c)
      note_size(c);
    std::vector<RecordedGradient> made;
    for (size_t c = 0; c < candidates_.size(); ++c)
      made.push_back(judge(c));
    leave_unread(made);
    return made;
  }

private:
  static constexpr size_t kMostRoots = 64;

  // From which calls of `backward` a value comes: a bit for each.
  void find_origins() {
    origins_.assign(program_.values.size(), 0);
    for (size_t r = 0; r < roots_.size(); ++r)
      if (roots_[r].seed.valid())
        origins_[roots_[r].seed.index] = uint64_t(1) << std::min(r, kMostRoots - 1);
    const bool inside = roots_.size() == 1 && !roots_[0].seed.valid();
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
      const ir::Inst &inst = program_.insts[InstId{i}];
      checker::OperandList operands;
      operands.read(program_, inst.operands);
      uint64_t from = 0;
      for (ValueId value : operands.values)
        from |= origins_[value.index];
      for (uint32_t r = 0; r < inst.result_count; ++r) {
        origins_[inst.result(r).index] |= from;
        if (inside && program_.values[inst.result(r)].grad_of.valid())
          origins_[inst.result(r).index] = 1;
      }
    }
  }

  // What is made where no gradients are recorded, and has one all the same: frameworks gather
  // parameters there, and run the forward of functions that bring their own backward. It is
  // differentiated back to where gradients are recorded.
  void differentiate_gathers(ReferenceRun &run) {
    llvm::DenseSet<uint32_t> wanted;
    for (uint32_t i = program_.main.last.index; i-- > program_.main.first.index;) {
      const ir::Inst &inst = program_.insts[InstId{i}];
      if (inst.result_count == 0 || program_.contexts[inst.context].grad ||
          origins_[inst.first_result.index])
        continue;
      bool passes = false;
      for (uint32_t r = 0; r < inst.result_count; ++r)
        passes |= program_.values[inst.result(r)].requires_grad == ir::Tristate::True ||
                  wanted.contains(inst.result(r).index);
      if (!passes)
        continue;
      run.differentiate(InstId{i});
      unseen_ |= reference_.resolve(inst.op).form == rules::OpForm::Equation;
      checker::OperandList operands;
      operands.read(program_, inst.operands);
      for (ValueId value : operands.values)
        wanted.insert(value.index);
    }
  }

  bool is_seed(ValueId value) const {
    return llvm::any_of(roots_, [&](const LossRoot &root) { return root.seed == value; });
  }

  void find_candidates() {
    llvm::DenseSet<uint32_t> stepped;
    std::vector<Candidate> late;
    auto step = [&](ValueId value, ValueId of) {
      if (stepped.insert(value.index).second)
        late.push_back({value, of, is_synchronised(value, of)});
    };
    for (const ir::Output &output : program_.outputs)
      if (output.role == ir::OutputRole::Grad && output.of.valid())
        step(output.value, output.of);
    llvm::DenseMap<uint32_t, ValueId> read; // by instruction: of which parameter
    for (const SteppedGradient &each : stepped_gradients(reference_, run_, /*pending=*/true)) {
      step(each.value, each.param);
      read[each.read.index] = each.param;
    }
    for_steps([&](InstId id, ValueId param, ValueId gradient) {
      if (read.lookup(id.index) == param || program_.values[gradient].grad_of == param)
        return;
      late.push_back({gradient, param, is_synchronised(gradient, param)});
      late.back().any_root = origins_[gradient.index] == 0;
      if (!late.back().any_root && !read.count(id.index))
        late.back().left = "it is no gradient that was moved, summed or multiplied by a number";
    });
    for (uint32_t i = 0; i < program_.values.size(); ++i)
      if (ValueId of = program_.values[ValueId{i}].grad_of;
          of.valid() && !is_seed(ValueId{i}) && !stepped.count(i) && in_main(ValueId{i}))
        candidates_.push_back({ValueId{i}, of, false});
    candidates_.insert(candidates_.end(), late.begin(), late.end());
    llvm::stable_sort(candidates_, [](const Candidate &a, const Candidate &b) {
      return a.value.index < b.value.index;
    });
  }
  // `step %param, %gradient` in the main body.
  template <class Visit> void for_steps(Visit visit) const {
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
      const ir::Inst &inst = program_.insts[InstId{i}];
      if (reference_.resolve(inst.op).boundary != rules::Boundary::Step)
        continue;
      checker::OperandList operands;
      operands.read(program_, inst.operands);
      if (operands.values.size() == 2 && program_.find_param(operands.values[0]))
        visit(InstId{i}, operands.values[0], operands.values[1]);
    }
  }
  bool in_main(ValueId value) const { return origins_[value.index] != 0 || run_.find(value); }

  // Ranks hold it as they hold what it is the gradient of.
  bool is_synchronised(ValueId value, ValueId of) const {
    const Meaning *own = run_.find(value), *param = run_.find(of);
    const ir::Type &type = program_.types[checked_.type(value)];
    bool pending = !(type.of(ir::Kind::Partial) - type.zero()).empty();
    return own && param && !pending && (own->per_rank - param->per_rank).empty();
  }

  // By root, then by candidate.
  using ReferenceValue = std::vector<std::vector<Derivative>>;

  void derive(ReferenceRun &run, ReferenceValue &into) {
    for (const LossRoot &root : roots_) {
      const Meaning *seed = root.seed.valid() ? run.find(root.seed) : nullptr;
      into.push_back(run.derivatives(root.loss, seed, of_));
    }
  }

  // What one device has for it: the sum over all that it comes from. Empty text: it is there.
  std::string wanted_for(size_t c, const ReferenceValue &wanted, Meaning &into) {
    const Candidate &candidate = candidates_[c];
    uint64_t origins = candidate.any_root ? ~uint64_t(0) : origins_[candidate.value.index];
    for (size_t r = 0; r < roots_.size(); ++r) {
      if (!(origins >> std::min(r, kMostRoots - 1) & 1))
        continue;
      const Derivative &each = wanted[r][c];
      if (!each.unknown.empty())
        return each.unknown;
      Meaning made = each.meaning;
      if (made.pieces.empty())
        continue; // none flows
      if (candidate.stepped)
        for (Tensor &piece : made.pieces)
          multiply(piece, 1, ranks_along(roots_[r]));
      if (into.pieces.empty()) {
        into = std::move(made);
        continue;
      }
      for (size_t p = 0; p < into.pieces.size(); ++p)
        combine_into(into.pieces[p], made.pieces[p], ir::Combiner::Sum);
    }
    if (!into.pieces.empty())
      return "";
    const Meaning *of = run_.find(candidate.of);
    if (!of)
      return "what it is the gradient of was not computed";
    into = *of;
    for (Tensor &piece : into.pieces)
      piece = zeros_like(piece, piece.dims);
    return "";
  }
  int64_t ranks_along(const LossRoot &root) const {
    return root.mean ? Grid(program_.meshes[root.mesh], root.mean).size() : 1;
  }

  // What ranks have of a gradient, as what it is the gradient of is held: lists of addends are
  // added up, and what is the same for several pieces is meant by each of them.
  std::string aligned(const Candidate &candidate, ReferenceRun &run, const Meaning &like,
                      Meaning &into) {
    const Meaning *found = run.find(candidate.value);
    if (!found)
      return "it was not computed";
    Meaning own = *found;
    const rules::TensorInfo known = checked_.known(candidate.value),
                            of = checked_.known(candidate.of);
    ir::MeshId mesh = program_.types[of.type].mesh();
    if (program_.types[known.type].mesh() != mesh) {
      rules::TensorInfo seen = known;
      rules::Remeshed there = rules::remesh(program_, program_.types[known.type], mesh, {});
      seen.type = program_.types.add(there.type);
      auto here = distribution_of(program_, known), other = distribution_of(program_, seen);
      if (there.violation || !here || !other || !*here || !*other) {
        llvm::consumeError(here.takeError());
        llvm::consumeError(other.takeError());
        return "it is on another mesh";
      }
      own = reframed(program_, own, **here, **other);
    }
    Grid all(program_.meshes[mesh], own.per_rank | like.per_rank),
        mine(program_.meshes[mesh], own.per_rank), theirs(program_.meshes[mesh], like.per_rank);
    into = {like.per_rank, std::vector<Tensor>(like.pieces.size())};
    for (int64_t c = 0; c < all.size(); ++c) {
      Grid::Coordinates at = all.coordinates(c);
      const Tensor &piece = own.pieces[static_cast<size_t>(mine.position(at))];
      auto to = static_cast<size_t>(theirs.position(at));
      if (piece.dims != like.pieces[to].dims || piece.is_complex() != like.pieces[to].is_complex())
        return "it has other extents than what it is the gradient of";
      if (into.pieces[to].dtype == ir::DType::Unknown)
        into.pieces[to] = piece;
      else
        combine_into(into.pieces[to], piece, ir::Combiner::Sum);
    }
    return "";
  }

  void note_size(size_t c) {
    Meaning want;
    if (wanted_for(c, wanted_, want).empty())
      for (double number : numbers_of(want))
        if (std::isfinite(number))
          largest_ = std::max(largest_, std::abs(number));
  }

  RecordedGradient judge(size_t c) {
    const Candidate &candidate = candidates_[c];
    RecordedGradient made;
    made.value = candidate.value;
    made.of = candidate.of;
    Meaning want, got;
    if (!candidate.left.empty())
      made.text = candidate.left;
    else if (origins_[candidate.value.index] == 0 && !candidate.any_root)
      made.text = "no loss is found that it comes from";
    else
      made.text = wanted_for(c, wanted_, want);
    if (made.text.empty())
      made.text = aligned(candidate, run_, want, got);
    if (!made.text.empty())
      return made;
    std::vector<double> a = numbers_of(got), b = numbers_of(want);
    double most = largest(b), floor = largest_ * kZero, allowed = most * kExplained + floor;
    size_t worst = 0;
    for (size_t i = 0; i < a.size(); ++i)
      if (apart(a[i], b[i]) > apart(a[worst], b[worst]))
        worst = i;
    double difference = a.empty() ? 0 : apart(a[worst], b[worst]);
    if (difference <= allowed) {
      made.form = RecordedGradient::Form::Upheld;
      if (most <= 4 * floor) { // whatever it is multiplied by
        made.form = RecordedGradient::Form::NotCompared;
        made.text = "it is zero but for rounding";
      }
      return made;
    }
    if (double carried = kOfMoved * moved_by(c); difference <= carried) {
      made.text = "rounding may carry that far here";
      return made;
    }
    std::optional<double> factor = factor_between(a, b, allowed);
    if (candidate.stepped && factor && is_choice(*factor)) {
      made.text =
          "nothing tells whether the loss of one device is the mean of those of the ranks or "
          "their sum (--losses)";
      return made;
    }
    if (unseen_) {
      made.text = "it differs from the derivative, and functions on the way bring their own "
                  "backward; it may be right";
      return made;
    }
    made.form = RecordedGradient::Form::Wrong;
    made.place = place_in(want, worst);
    made.got = fmt::format("{:.6g}", a[worst]);
    made.want = fmt::format("{:.6g}", b[worst]);
    made.difference = fmt::format("{:.3g}", difference);
    made.bound = fmt::format("{:.3g}", allowed);
    explain(made, candidate, factor);
    return made;
  }

  // A sum of losses for their mean, or the other way round, along axes where that is assumed.
  bool is_choice(double factor) const {
    for (const LossRoot &root : roots_)
      for (ir::AxisId axis : root.assumed)
        if (auto ranks = static_cast<double>(program_.meshes[root.mesh][axis].size());
            std::abs(factor - ranks) < kExplained || std::abs(factor * ranks - 1) < kExplained)
          return true;
    return false;
  }

  void explain(RecordedGradient &made, const Candidate &candidate, std::optional<double> factor) {
    made.text = factor && *factor != 0
                    ? fmt::format("it is {} times that of one device", print_factor(*factor))
                : factor ? "it is zero, and that of one device is not"
                         : "it is not that of one device";
    if (!candidate.stepped)
      return;
    for (const LossRoot &root : roots_)
      if (root.mesh == program_.types[checked_.type(candidate.value)].mesh())
        made.axes |= root.mean | root.sum;
  }

  // How far both go where inputs are moved by what is much more than rounding.
  double moved_by(size_t c) {
    if (!moved_) {
      moved_.emplace(reference_);
      moved_->replace_values(replaced_);
      if (llvm::Error problem = moved_->run(moved_params())) {
        llvm::consumeError(std::move(problem));
        moved_fails_ = true;
      } else {
        differentiate_gathers(*moved_);
        derive(*moved_, moved_wanted_);
      }
    }
    Meaning want, moved_want, got, moved_got;
    if (moved_fails_ || !wanted_for(c, wanted_, want).empty() ||
        !wanted_for(c, moved_wanted_, moved_want).empty() ||
        !aligned(candidates_[c], run_, want, got).empty() ||
        !aligned(candidates_[c], *moved_, want, moved_got).empty())
      return 0;
    return std::max(furthest(want, moved_want), furthest(got, moved_got));
  }
  static double furthest(const Meaning &a, const Meaning &b) {
    std::vector<double> from = numbers_of(a), to = numbers_of(b);
    double most = 0;
    for (size_t i = 0; i < from.size() && i < to.size(); ++i)
      if (double distance = apart(from[i], to[i]); std::isfinite(distance))
        most = std::max(most, distance);
    return most;
  }
  Meanings moved_params() const {
    Meanings moved = params_;
    uint64_t place = 0;
    for (Meaning &meaning : moved)
      for (Tensor &piece : meaning.pieces)
        if (ir::differentiable(piece.dtype) && !piece.is_complex() && !piece.is_modular())
          for (double &cell : piece.of<double>())
            cell *= 1 + (ir::mix(1, ++place) & 1 ? kMoved : -kMoved);
    return moved;
  }

  // Parameters that have a gradient, and none that the optimizer reads was found.
  void leave_unread(std::vector<RecordedGradient> &made) {
    llvm::DenseSet<uint32_t> read, left;
    for (const Candidate &candidate : candidates_)
      if (candidate.stepped)
        read.insert(candidate.of.index);
    for (const ir::Output &output : program_.outputs)
      if (output.role == ir::OutputRole::State && is_trained(output.of) &&
          !read.count(output.of.index) && left.insert(output.of.index).second)
        made.push_back({output.of,
                        output.of,
                        RecordedGradient::Form::NotCompared,
                        "which gradient the optimizer reads is not found",
                        {},
                        {},
                        {},
                        {},
                        {},
                        {}});
  }
  bool is_trained(ValueId param) {
    return param.valid() && llvm::any_of(candidates_, [&](const Candidate &candidate) {
             return parameter_behind(reference_, candidate.of) == param;
           });
  }

  Reference &reference_;
  ir::Program &program_;
  checker::CheckedProgram &checked_;
  ReferenceRun &run_;
  const Meanings &params_;
  const llvm::DenseMap<uint32_t, Meaning> &replaced_;
  llvm::ArrayRef<LossRoot> roots_;
  std::vector<uint64_t> origins_; // by ValueId
  std::vector<Candidate> candidates_;
  std::vector<ValueId> of_;
  ReferenceValue wanted_, moved_wanted_;
  double largest_ = 0; // of all gradients of one device
  std::optional<ReferenceRun> moved_;
  bool moved_fails_ = false;
  bool unseen_; // functions bring their own backward
};

} // namespace

std::vector<RecordedGradient> compare_recorded(Reference &reference, ReferenceRun &run,
                                               const Meanings &params,
                                               const llvm::DenseMap<uint32_t, Meaning> &replaced,
                                               llvm::ArrayRef<LossRoot> roots) {
  return Comparison(reference, run, params, replaced, roots).compare();
}

} // namespace spmd::runtime
