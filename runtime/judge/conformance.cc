// Shapes first, then ranks against ranks, then what they mean against the reference.
#include "runtime/judge/conformance.h"

#include "runtime/judge/likely_mistake.h"

#include "ir/support/check.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace spmd::runtime {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kBlindBelow = 4; // bounds by which a mistake must stand out
constexpr size_t kRanksShown = 8;
constexpr const char *kNoBound = "no bound on rounding is known";

std::string print_position(const Tensor &tensor, int64_t element) {
  llvm::SmallVector<int64_t, 5> place(tensor.dims.size());
  for (size_t i = tensor.dims.size(); i-- > 0;) {
    place[i] = element % tensor.dims[i];
    element /= tensor.dims[i];
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

std::string print_cell(const Tensor &tensor, int64_t element) {
  return tensor.visit([&](const auto &cells) -> std::string {
    const auto &cell = cells[static_cast<size_t>(element)];
    using T = std::decay_t<decltype(cell)>;
    if constexpr (std::is_same_v<T, Residue>)
      return std::to_string(cell.number());
    else if constexpr (std::is_same_v<T, Complex>)
      return fmt::format("{:.6g}{:+.6g}i", cell.real(), cell.imag());
    else
      return fmt::format("{:.6g}", cell);
  });
}

std::string print_ranks(llvm::ArrayRef<int64_t> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kRanksShown; ++i)
    text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  if (ranks.size() > kRanksShown)
    text += fmt::format(" and {} more", ranks.size() - kRanksShown);
  return text;
}

// The first element that is beyond its bound, and how far the worst one is.
struct Worst {
  int64_t first = -1; // none differs
  double largest = 0, allowed = 0;
  double ratio = 0;
};

void consider(Worst &worst, int64_t element, double difference, double bound) {
  if (!(difference > bound) && !std::isnan(difference))
    return;
  if (worst.first < 0)
    worst.first = element;
  if (std::isnan(difference))
    difference = kInfinite;
  if (difference > worst.largest) {
    worst.largest = difference;
    worst.allowed = bound;
  }
}

double distance(double a, double b) {
  bool odd = !std::isfinite(a) || !std::isfinite(b);
  if (odd) // as masks: NaN is NaN, and an infinity has a sign
    return (std::isnan(a) && std::isnan(b)) || a == b ? 0 : kInfinite;
  return std::abs(a - b);
}
double distance(Complex a, Complex b) {
  return std::max(distance(a.real(), b.real()), distance(a.imag(), b.imag()));
}
double distance(Residue a, Residue b) {
  return a == b ? 0 : std::abs(static_cast<double>((a - b).number()));
}

double bound_at(const Tensor *bound, size_t i) { return bound ? bound->of<double>()[i] : 0; }

Worst compare(const Tensor &got, const Tensor &want, const Tensor *bound) {
  Worst worst;
  SPMD_CHECK(got.dims == want.dims && got.cells.index() == want.cells.index(),
             "compared tensors have one shape and dtype");
  got.visit([&](const auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    const std::vector<T> &others = want.of<T>();
    for (size_t i = 0; i < cells.size(); ++i) {
      double limit = bound_at(bound, i), apart = distance(cells[i], others[i]);
      consider(worst, static_cast<int64_t>(i), apart, limit);
      if (apart > 0)
        worst.ratio = std::max(worst.ratio, limit > 0 ? apart / limit : kInfinite);
    }
  });
  return worst;
}

double largest_of(const Meaning *bound) {
  double largest = 0;
  for (const Tensor &piece : bound->pieces)
    for (double cell : piece.of<double>())
      largest = std::max(largest, cell);
  return largest;
}

class Judge {
public:
  Judge(ir::Program &program, const Observed &observed, const ReferenceValue &wanted,
        Distribution dist)
      : program_(program), observed_(observed), wanted_(wanted), dist_(std::move(dist)),
        mesh_(program.meshes[dist_.type().mesh()]), numbers_(ranks_of_mesh(mesh_)) {}

  Judgment run() {
    if (!shapes() && !replicas())
      values();
    claims();
    return std::move(judgment_);
  }

  std::optional<Judgment> run_by_fingerprints(uint64_t key) {
    if (!same_forms() || !same_copies() || !same_values(key))
      return std::nullopt;
    claims();
    return std::move(judgment_);
  }

private:
  // True if a rank holds something of another form.
  bool shapes() {
    const std::vector<Dims> dims = dims_of(observed_.tensors);
    for (int64_t rank = 0; rank < dist_.ranks().size(); ++rank) {
      const Tensor &held = observed_.tensors[static_cast<size_t>(rank)];
      Dims right = dist_.dims_on(rank, dims);
      if (held.dims == right && held.dtype == dist_.dtype())
        continue;
      Refuted wrong;
      wrong.form = Refuted::Form::Shape;
      wrong.ranks = std::to_string(numbers_[static_cast<size_t>(rank)]);
      wrong.got = print_form(held.dtype, held.dims);
      wrong.want = print_form(dist_.dtype(), right);
      judgment_.refuted = std::move(wrong);
      return true;
    }
    return false;
  }

  std::string print_form(ir::DType dtype, llvm::ArrayRef<int64_t> dims) {
    return fmt::format("{}[{}]", ir::info(dtype).word, fmt::join(dims, ", "));
  }

  AxisSet same_axes() const {
    const ir::Type &type = dist_.type();
    return (type.same_on_all_ranks() & mesh_.typed_axes()) - dist_.per_rank_axes();
  }

  // True if ranks that should hold the same do not, and rounding does not explain it.
  bool replicas() {
    for (AxisId axis : same_axes())
      if (std::optional<Refuted> apart = compare_along(axis)) {
        bool drift = apart->drift;
        judgment_.refuted = std::move(apart);
        if (!drift)
          return true;
      }
    return false;
  }

  std::optional<Refuted> compare_along(AxisId axis) {
    Refuted wrong;
    llvm::SmallVector<int64_t, 8> ranks;
    double largest = 0;
    for (int64_t rank = 0; rank < dist_.ranks().size(); ++rank) {
      Grid::Coordinates at = dist_.ranks().coordinates(rank);
      if (at[axis.index] == 0)
        continue;
      at[axis.index] = 0;
      const Tensor &own = observed_.tensors[static_cast<size_t>(rank)];
      const Tensor &other = observed_.tensors[static_cast<size_t>(dist_.ranks().position(at))];
      Worst worst = compare(own, other, nullptr);
      if (worst.first < 0)
        continue;
      ranks.push_back(numbers_[static_cast<size_t>(rank)]);
      largest = std::max(largest, worst.largest);
      if (wrong.first.empty()) {
        wrong.first = print_position(own, worst.first);
        wrong.got = print_cell(own, worst.first);
        wrong.want = print_cell(other, worst.first);
      }
    }
    if (ranks.empty())
      return std::nullopt;
    wrong.form = Refuted::Form::RanksDiffer;
    wrong.axes = axis;
    wrong.kind = kind_on(axis);
    wrong.ranks = print_ranks(ranks);
    wrong.difference = fmt::format("{:.3g}", largest);
    if (double allowed = wanted_.bound && !wanted_.exact ? 2 * largest_of(wanted_.bound) : 0;
        allowed > 0) {
      wrong.drift = largest <= allowed;
      wrong.bound = fmt::format("{:.3g}", allowed);
    }
    return wrong;
  }

  std::optional<Kind> kind_on(AxisId axis) const {
    const ir::Type &type = dist_.type();
    if (dist_.per_rank_axes().contains(axis) || type.sharded().contains(axis))
      return Kind::Varying;
    if (type.either().contains(axis))
      return Kind::Replicate;
    return type.kind(axis);
  }

  // The scale of what is to be compared with the reference; none: nothing is, and `undecided` says
  // why if it should be.
  std::optional<Rational> comparable() {
    if (!wanted_.meant)
      return std::nullopt;
    std::optional<Rational> scale = number_of(program_, dist_.type().scale, dist_.type().mesh());
    if (!scale)
      judgment_.undecided = "the scale has no value";
    else if (dist_.per_rank_axes() != wanted_.meant->per_rank ||
             dist_.per_rank_grid().size() != static_cast<int64_t>(wanted_.meant->pieces.size()))
      judgment_.undecided = "the reference is a list along other axes";
    return judgment_.undecided.empty() ? scale : std::nullopt;
  }
  // Whether differences can be judged.
  bool bounded() const { return wanted_.exact || wanted_.bound; }

  void values() {
    std::optional<Rational> scale = comparable();
    if (!scale)
      return;
    std::vector<const Tensor *> held;
    for (const Tensor &tensor : observed_.tensors)
      held.push_back(&tensor);
    Meaning got = dist_.denote(held);
    for (Tensor &piece : got.pieces)
      multiply(piece, scale->second, scale->first);
    // Of open extents rounding may have decided.
    for (size_t p = 0; p < got.pieces.size() && (bounded() || !dist_.open()); ++p)
      if (got.pieces[p].dims != wanted_.meant->pieces[p].dims)
        return refute_extents(got, p);
    if (!bounded()) {
      judgment_.undecided = kNoBound;
      return;
    }
    compare_meanings(got);
  }

  // --- by fingerprints: false where it takes the data to say what is so

  const Fingerprint &print_of(int64_t rank) const {
    return observed_.fingerprints[static_cast<size_t>(rank)];
  }

  bool same_forms() const {
    std::vector<Dims> dims;
    for (const Fingerprint &print : observed_.fingerprints)
      dims.push_back(print.dims);
    for (int64_t rank = 0; rank < dist_.ranks().size(); ++rank)
      if (!print_of(rank).there || print_of(rank).dtype != dist_.dtype() ||
          print_of(rank).dims != dist_.dims_on(rank, dims))
        return false;
    return true;
  }

  bool same_copies() const {
    for (AxisId axis : same_axes())
      for (int64_t rank = 0; rank < dist_.ranks().size(); ++rank) {
        Grid::Coordinates at = dist_.ranks().coordinates(rank);
        at[axis.index] = 0;
        if (print_of(rank).bits != print_of(dist_.ranks().position(at)).bits)
          return false;
      }
    return true;
  }

  bool same_values(uint64_t key) {
    std::optional<Rational> scale = comparable();
    if (!scale)
      return true;
    for (int64_t p = 0; p < dist_.per_rank_grid().size(); ++p) {
      const Tensor &want = wanted_.meant->pieces[static_cast<size_t>(p)];
      std::vector<Distribution::Addends> blocks =
          dist_.blocks_of(dist_.per_rank_grid().coordinates(p));
      const Dims &first = print_of(blocks.front().front()).dims;
      if ((bounded() || !dist_.open()) && dist_.piece_dims(first) != want.dims)
        return false;
      if (bounded() && (!wanted_.exact || !same_sums(blocks, want, *scale, key)))
        return false;
    }
    if (!bounded())
      judgment_.undecided = kNoBound;
    return true;
  }

  bool same_sums(llvm::ArrayRef<Distribution::Addends> blocks, const Tensor &want, Rational scale,
                 uint64_t key) const {
    if (!dist_.adds_up())
      return false;
    for (const Distribution::Addends &ranks : blocks) {
      Residue got;
      for (int64_t rank : ranks) {
        if (!print_of(rank).sum)
          return false;
        got += *print_of(rank).sum;
      }
      const Dims first = dist_.first_on(ranks.front());
      const Dims &dims = print_of(ranks.front()).dims;
      std::optional<Residue> right =
          weighted_sum(dims == want.dims ? want : block_of(want, first, dims), first, key);
      if (!right || got * Residue(scale.second) != *right * Residue(scale.first))
        return false;
    }
    return true;
  }

  void refute_extents(const Meaning &got, size_t p) {
    Refuted wrong;
    wrong.form = Refuted::Form::Shape;
    wrong.ranks = print_ranks(numbers_);
    wrong.got = print_form(dist_.dtype(), got.pieces[p].dims);
    wrong.want = print_form(dist_.dtype(), wanted_.meant->pieces[p].dims);
    judgment_.refuted = std::move(wrong);
  }

  void compare_meanings(const Meaning &got) {
    Worst overall;
    size_t first = 0;
    for (size_t p = 0; p < got.pieces.size(); ++p) {
      const Tensor *bound = wanted_.bound && !wanted_.exact ? &wanted_.bound->pieces[p] : nullptr;
      Worst worst = compare(got.pieces[p], wanted_.meant->pieces[p], bound);
      if (worst.first < 0)
        continue;
      if (overall.first < 0) {
        first = p;
        overall = worst;
      } else if (worst.largest > overall.largest) {
        overall.largest = worst.largest;
        overall.allowed = worst.allowed;
      }
    }
    if (overall.first >= 0)
      refute(got, first, overall);
  }

  void refute(const Meaning &got, size_t piece, const Worst &worst) {
    Refuted wrong;
    wrong.first = print_position(got.pieces[piece], worst.first);
    wrong.got = print_cell(got.pieces[piece], worst.first);
    wrong.want = print_cell(wanted_.meant->pieces[piece], worst.first);
    wrong.difference = fmt::format("{:.3g}", worst.largest);
    if (wanted_.bound && !wanted_.exact)
      wrong.bound = fmt::format("{:.3g}", worst.allowed);
    LikelyMistake guess = likely_mistake(program_, dist_, observed_, wanted_, got);
    wrong.guess = guess.text;
    blame(wrong, guess.axes);
    wrong.ranks = print_ranks(ranks_showing());
    judgment_.refuted = std::move(wrong);
  }

  // The axes in question: those that the guess names, else those that the step works on, else all;
  // of these the ones of one kind, what is pending before what is cut, and that before what is the
  // same.
  void blame(Refuted &wrong, AxisSet guessed) const {
    AxisSet axes = mesh_.typed_axes();
    if (guessed & axes)
      axes &= guessed;
    else if (wanted_.acted & axes)
      axes &= wanted_.acted;
    constexpr Kind kOrder[] = {Kind::Partial, Kind::Varying, Kind::Invariant, Kind::Reduced,
                               Kind::Replicate};
    for (Kind kind : kOrder) {
      AxisSet of;
      for (AxisId axis : axes)
        if (kind_on(axis) == kind)
          of |= axis;
      if (of) {
        wrong.axes = of;
        wrong.kind = kind;
        return;
      }
    }
  }

  // Ranks whose block differs from what they would hold if it meant the reference; of a sum, all.
  llvm::SmallVector<int64_t, 8> ranks_showing() const {
    llvm::SmallVector<int64_t, 8> ranks;
    AxisSet pending = dist_.type().of(Kind::Partial) - dist_.type().zero();
    std::vector<Tensor> right = dist_.place(*wanted_.meant);
    for (size_t rank = 0; rank < right.size(); ++rank) {
      bool all = (pending & mesh_.typed_axes()) || dist_.type().scale != program_.one();
      if (all || !(right[rank].cells == observed_.tensors[rank].cells))
        ranks.push_back(numbers_[rank]);
    }
    return ranks;
  }

  void claims() {
    for (uint8_t a = 0; a < mesh_.axes.size(); ++a) {
      AxisId axis{a};
      if (mesh_.axes[a].flattened)
        continue;
      ClaimVerdict claim;
      claim.value = observed_.value;
      claim.mesh = dist_.type().mesh();
      claim.axis = axis;
      claim.gradient = observed_.gradient_of.valid();
      if (mesh_.typed_axes().contains(axis)) {
        claim.kind = kind_on(axis);
        claim.shard = dist_.type().dim(axis).has_value();
        claim.verdict = verdict_on(axis);
      }
      judgment_.claims.push_back(claim);
    }
  }

  Verdict verdict_on(AxisId axis) const {
    const std::optional<Refuted> &wrong = judgment_.refuted;
    if (wrong && !wrong->drift) {
      // What else the value claims cannot be upheld by data that are wrong.
      bool here = wrong->form == Refuted::Form::Shape || wrong->axes.contains(axis);
      return here ? Verdict::Refuted : Verdict::Undecided;
    }
    return judgment_.undecided.empty() ? Verdict::Upheld : Verdict::Undecided;
  }

  ir::Program &program_;
  const Observed &observed_;
  const ReferenceValue &wanted_;
  Distribution dist_;
  const ir::Mesh &mesh_;
  std::vector<int64_t> numbers_;
  Judgment judgment_;
};

} // namespace

static Judgment undecided(llvm::Error why) {
  Judgment judgment;
  judgment.undecided = llvm::toString(std::move(why));
  return judgment;
}

Judgment judge(ir::Program &program, const Observed &observed, const ReferenceValue &wanted) {
  llvm::Expected<Distribution> dist = Distribution::make(program, observed.known);
  return dist ? Judge(program, observed, wanted, std::move(*dist)).run()
              : undecided(dist.takeError());
}

std::optional<Judgment> judge_fingerprints(ir::Program &program, const Observed &observed,
                                           const ReferenceValue &wanted, uint64_t key) {
  llvm::Expected<Distribution> dist = Distribution::make(program, observed.known);
  return dist ? Judge(program, observed, wanted, std::move(*dist)).run_by_fingerprints(key)
              : undecided(dist.takeError());
}

double largest_ratio(const Meaning &got, const Meaning &want, const Meaning *bound) {
  double ratio = 0;
  for (size_t p = 0; p < got.pieces.size(); ++p)
    ratio = std::max(
        ratio, compare(got.pieces[p], want.pieces[p], bound ? &bound->pieces[p] : nullptr).ratio);
  return ratio;
}

bool is_blind(const Meaning &want, const Meaning *bound, llvm::ArrayRef<Meaning> parts,
              int64_t ranks) {
  auto shows = [&](const Meaning &mistake) {
    return largest_ratio(mistake, want, bound) >= kBlindBelow;
  };
  auto times = [&](int64_t numerator, int64_t denominator) {
    Meaning made = want;
    for (Tensor &piece : made.pieces)
      multiply(piece, numerator, denominator);
    return made;
  };
  if (!shows(times(2, 1)) || !shows(times(1, ranks)))
    return true;
  // A sum that is missing leaves each rank with its own part.
  return llvm::any_of(parts, [&](const Meaning &part) {
    bool same_dims = part.pieces.size() == want.pieces.size();
    for (size_t p = 0; same_dims && p < part.pieces.size(); ++p)
      same_dims = part.pieces[p].dims == want.pieces[p].dims;
    return same_dims && !shows(part);
  });
}

Verdict joined(Verdict a, Verdict b) {
  constexpr Verdict kOrder[] = {Verdict::Refuted,   Verdict::Upheld, Verdict::ForwardOnly,
                                Verdict::Undecided, Verdict::Blind,  Verdict::NotChecked};
  for (Verdict verdict : kOrder)
    if (a == verdict || b == verdict)
      return verdict;
  return a;
}

} // namespace spmd::runtime
