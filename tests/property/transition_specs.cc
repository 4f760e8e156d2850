// Transitions on tensors that are sharded over a grid of two axes: what is accepted denotes what
// its row does to the whole tensor, also with another axis on the same dimension; what is refused
// for the order or the dimension of its axes would not. The backward of a call undoes its partition
// spec.
#include "tests/property/grid.h"

#include "checker/check.h"
#include "ir/input/input.h"
#include "tests/unit/catch.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

namespace spmd::property {
namespace {

using ir::Kind;
using rules::Transition;

// One application.
struct Sample {
  const Transition *row;
  Call axes;
  Spec operand;
  int from = -1, to = -1; // dimensions in the words; -1: none
  std::string lengths;    // attributes
  std::vector<int> local, global;

  std::string text(size_t i) const {
    std::string x = "%x" + std::to_string(i), y = "%y" + std::to_string(i);
    return x + " = input " + type_text(operand, local, global) + "\n" + y + " = " +
           std::string(row->name()) + " " + x + " { axis = " + listed(axes) +
           ", src = " + word(row->src, from) + ", dst = " + word(row->dst, to) + ", expert = true" +
           lengths + " }\n";
  }
};

// What the checker says of it.
struct Judged {
  std::vector<std::string> findings;
  Spec result;
  std::vector<int64_t> shape;      // empty if it cannot be determined
  std::optional<int64_t> global_0; // extent of dimension 0, where blocks are uneven
};

std::vector<Judged> judge(const Grid &grid, const std::vector<Sample> &samples, size_t rank = 0) {
  std::string text = "trace { world = " + std::to_string(grid.ranks()) +
                     ", rank = " + std::to_string(rank) +
                     " }\nmesh m { a = " + std::to_string(grid.sizes[0]) +
                     ", b = " + std::to_string(grid.sizes[1]) + " }\n";
  for (size_t i = 0; i < samples.size(); ++i)
    text += samples[i].text(i);
  ir::ReadResult read = ir::read_program(text);
  INFO(text.substr(0, 2000));
  for (const ir::InputError &error : read.errors)
    FAIL(error.name << " " << error.line << " " << error.message);
  ir::Program &program = read.program;
  checker::CheckResult result = checker::check(program, {});
  std::vector<Judged> judged(samples.size());
  for (const checker::Finding &finding : result.findings) {
    REQUIRE(finding.place.form == checker::Place::Form::Inst);
    judged[finding.place.index].findings.emplace_back(finding.info().name);
  }
  for (uint32_t i = 0; i < samples.size(); ++i) {
    ir::ValueId value = program.insts[ir::InstId{i}].first_result;
    judged[i].result = spec_of(program.types[result.types[value.index]]);
    if (ir::ShapeId shape = result.shapes[value.index]; shape.valid())
      for (ir::Extent extent : program.shapes[shape].dims)
        judged[i].shape.push_back(extent.number());
    if (ir::ShardSizesId sizes = result.sizes[value.index]; sizes.valid())
      if (const ir::UnevenDim *uneven = program.shard_sizes[sizes].find(0))
        judged[i].global_0 = uneven->global.number();
  }
  return judged;
}

const std::vector<Call> kCalls = {{0}, {1}, {0, 1}, {1, 0}};

bool in(const Call &axes, size_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// Every way in which the operand of a call may be spread: as the row wants it on the axes of the
// call, in any way on the other.
std::vector<Spec> operands_of(const Transition &row, const Call &axes) {
  struct Choice {
    Kind kind;
    int dim;
  };
  std::vector<Spec> specs;
  std::array<std::vector<Choice>, kAxes> choices;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if (!in(axes, axis))
      choices[axis] = {
          {Kind::Replicate, -1}, {Kind::Partial, -1}, {Kind::Varying, 0}, {Kind::Varying, 1}};
    else if (row.src == Kind::Varying)
      choices[axis] = {{Kind::Varying, 0}, {Kind::Varying, 1}};
    else
      choices[axis] = {{row.src, -1}};
  }
  for (Choice a : choices[0])
    for (Choice b : choices[1]) {
      Spec spec;
      spec.kinds = {a.kind, b.kind};
      spec.dims = {a.dim, b.dim};
      specs.push_back(spec);
      if (a.dim < 0 || a.dim != b.dim)
        continue;
      specs.back().orders = {0, 1};
      spec.orders = {1, 0};
      specs.push_back(spec);
    }
  return specs;
}

std::vector<int> dims_of(Kind kind) {
  return kind == Kind::Varying ? std::vector<int>{-1, 0, 1} : std::vector<int>{-1};
}

std::vector<int> local_shape(const Grid &grid, const Spec &spec, const std::vector<int> &whole) {
  std::vector<int> local = whole;
  for (size_t dim = 0; dim < local.size(); ++dim)
    local[dim] /= static_cast<int>(grid.count(spec.axes_on(static_cast<int>(dim))));
  return local;
}

std::vector<int> whole_shape(const Grid &grid) {
  int ranks = static_cast<int>(grid.ranks());
  return {ranks, 2 * ranks};
}

std::vector<Sample> samples_of(const Grid &grid, const Transition &row) {
  std::vector<Sample> samples;
  for (const Call &axes : kCalls)
    for (const Spec &operand : operands_of(row, axes))
      for (int from : dims_of(row.src))
        for (int to : dims_of(row.dst))
          samples.push_back({&row,
                             axes,
                             operand,
                             from,
                             to,
                             "",
                             local_shape(grid, operand, whole_shape(grid)),
                             {}});
  return samples;
}

Form form_of(const Sample &sample) {
  Form form;
  form.shard = true;
  form.dim = static_cast<size_t>(std::max({sample.from, sample.to, 0}));
  form.join = static_cast<size_t>(std::max(sample.from, 0));
  form.split = static_cast<size_t>(std::max(sample.to, 0));
  return form;
}

// An exchange from a dimension that is cut to the same one.
bool moves_nothing(const Sample &sample) {
  if (sample.row->collective != rules::Collective::AllToAll || sample.from < 0 ||
      sample.from != sample.to)
    return false;
  auto cutting = sample.operand.axes_on(sample.from);
  return llvm::all_of(sample.axes, [&](size_t axis) { return llvm::is_contained(cutting, axis); });
}

// The result if the call were taken at its words.
Spec taken_at_word(const Sample &sample) {
  if (moves_nothing(sample))
    return sample.operand;
  Spec spec = sample.operand;
  for (size_t axis : sample.axes)
    spec.remove(axis);
  for (size_t axis : sample.axes) {
    if (sample.row->dst == Kind::Varying)
      spec.append(axis, sample.to);
    else
      spec.kinds[axis] = sample.row->dst;
  }
  return spec;
}

// True if carrying out the call gives what its row means, the result read as `spec`.
bool is_right(const Grid &grid, const Sample &sample, const Spec &spec, std::mt19937 &random) {
  int ranks = static_cast<int>(grid.count(sample.axes));
  bool stays = moves_nothing(sample);
  if (!stays && sample.to >= 0 && sample.local[static_cast<size_t>(sample.to)] % ranks != 0)
    return false; // it cannot be carried out
  Tensor whole = random_tensor(whole_shape(grid), random);
  Ranks held = distribute(grid, sample.operand, whole, even, random);
  Ranks made = stays ? held : run(grid, *sample.row, form_of(sample), sample.axes, held);
  // As if a rank held an addend of its own, though all hold the same.
  bool repeats =
      sample.row->op == rules::TransitionOp::Reinterpret && sample.row->dst == Kind::Partial;
  int64_t factor = repeats ? static_cast<int64_t>(grid.count(sample.axes)) : 1;
  std::optional<Tensor> found = assemble(grid, spec, made);
  return found && *found == times(whole, factor);
}

bool is_shard_form(const Sample &sample) {
  return (sample.row->src != Kind::Varying || sample.from >= 0) &&
         (sample.row->dst != Kind::Varying || sample.to >= 0);
}

template <class Check> void for_each_row(Check check) {
  for (Grid grid : {Grid{{2, 2}}, Grid{{2, 3}}, Grid{{3, 2}}})
    for (const Transition &row : rules::transitions())
      check(grid, row);
}

} // namespace

TEST_CASE("a transition that is accepted on shards means what its row means") {
  std::mt19937 random(11);
  std::set<const Transition *> seen;
  size_t accepted = 0, refused = 0;
  for_each_row([&](const Grid &grid, const Transition &row) {
    std::vector<Sample> samples = samples_of(grid, row);
    std::vector<Judged> judged = judge(grid, samples);
    for (size_t i = 0; i < samples.size(); ++i) {
      const Sample &sample = samples[i];
      const Judged &verdict = judged[i];
      INFO(sample.text(i));
      if (verdict.findings.empty()) {
        REQUIRE(is_shard_form(sample));
        CHECK(verdict.result == taken_at_word(sample));
        CHECK(is_right(grid, sample, verdict.result, random));
        std::vector<int> expected = local_shape(grid, verdict.result, whole_shape(grid));
        CHECK(std::equal(expected.begin(), expected.end(), verdict.shape.begin(),
                         verdict.shape.end()));
        seen.insert(&row);
        ++accepted;
        continue;
      }
      bool misplaced = false;
      for (const std::string &name : verdict.findings) {
        INFO(name);
        CHECK((is_shard_form(sample) || name == "no-shard-rule" || name == "no-transition" ||
               name == "wrong-source"));
        misplaced |= name == "not-innermost" || name == "wrong-dimension";
      }
      if (!misplaced || !is_shard_form(sample))
        continue;
      CHECK(!is_right(grid, sample, taken_at_word(sample), random));
      ++refused;
    }
  });
  CHECK(accepted > 1000);
  CHECK(refused > 500);
  // The others end in a list, or move one: they have no meaning for a tensor.
  for (const Transition &row : rules::transitions()) {
    INFO(print(row));
    bool lists = row.layouts == rules::Layouts::Plain || row.composed;
    bool spread = row.src == Kind::Varying || row.dst == Kind::Varying;
    CHECK(seen.count(&row) == !(lists && spread));
  }
}

TEST_CASE("the backward of a transition undoes what it does to the partition spec") {
  for_each_row([&](const Grid &grid, const Transition &row) {
    const Transition *dual = row.composed ? nullptr : rules::dual_of(row);
    if (!dual)
      return;
    std::vector<Sample> samples = samples_of(grid, row), back;
    std::vector<Judged> judged = judge(grid, samples);
    std::vector<Spec> expected;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (!judged[i].findings.empty())
        continue;
      const Sample &sample = samples[i];
      Spec gradient = judged[i].result.dual();
      back.push_back({dual,
                      sample.axes,
                      gradient,
                      sample.to,
                      sample.from,
                      "",
                      local_shape(grid, gradient, whole_shape(grid)),
                      {}});
      expected.push_back(sample.operand.dual());
    }
    std::vector<Judged> undone = judge(grid, back);
    for (size_t i = 0; i < back.size(); ++i) {
      INFO(print(row) << "\n" << back[i].text(i));
      CHECK(undone[i].findings.empty());
      CHECK(undone[i].result == expected[i]);
    }
  });
}

// Blocks of different lengths: each rank in turn is the one on which the program was recorded.
TEST_CASE("uneven blocks are gathered and exchanged as they lie") {
  std::mt19937 random(23);
  const Transition *gather =
      rules::find_transition(rules::TransitionOp::AllGather, Kind::Varying, Kind::Replicate);
  const Transition *exchange =
      rules::find_transition(rules::TransitionOp::AllToAll, Kind::Varying, Kind::Varying);
  REQUIRE((gather && exchange));
  size_t accepted = 0;
  for (Grid grid : {Grid{{2, 2}}, Grid{{2, 3}}})
    for (int extent = 1; extent <= 11; ++extent)
      for (const Transition *row : {gather, exchange})
        for (const Call &axes : kCalls)
          for (const Spec &operand : operands_of(*row, axes)) {
            if (operand.axes_on(0).empty() || !operand.axes_on(1).empty())
              continue;
            Sample sample{row, axes, operand, 0, row == exchange ? 1 : -1, "", {}, {}};
            int columns = static_cast<int>(grid.ranks());
            Tensor whole = random_tensor({extent, columns}, random);
            Ranks held = distribute(grid, operand, whole, ceiling, random);
            Ranks made = run(grid, *row, form_of(sample), axes, held);
            for (size_t rank = 0; rank < grid.ranks(); ++rank) {
              if (held[rank].shape[0] == 0)
                continue;
              sample.local = held[rank].shape;
              sample.global = whole.shape;
              Judged verdict = judge(grid, {sample}, rank)[0];
              INFO(sample.text(0) << "on rank " << rank);
              if (!verdict.findings.empty()) {
                CHECK(verdict.findings == std::vector<std::string>{"not-innermost"});
                continue;
              }
              ++accepted;
              std::optional<Tensor> found = assemble(grid, verdict.result, made);
              REQUIRE(found);
              CHECK(*found == whole);
              CHECK(std::equal(made[rank].shape.begin(), made[rank].shape.end(),
                               verdict.shape.begin(), verdict.shape.end()));
              bool same = std::all_of(made.begin(), made.end(), [&](const Tensor &each) {
                return each.shape[0] == made[0].shape[0];
              });
              CHECK(verdict.global_0.has_value() == !same);
              if (verdict.global_0)
                CHECK(*verdict.global_0 == extent);
            }
          }
  CHECK(accepted > 200);
}

TEST_CASE("stated lengths cut a tensor into blocks that gather to it again") {
  std::mt19937 random(31);
  const Transition *slice =
      rules::find_transition(rules::TransitionOp::Convert, Kind::Replicate, Kind::Varying);
  REQUIRE(slice);
  Grid grid{{2, 3}};
  for (size_t trial = 0; trial < 60; ++trial) {
    Call axes = kCalls[trial % kCalls.size()];
    Form form;
    form.shard = true;
    std::string text;
    for (size_t i = 0; i < grid.count(axes); ++i) {
      form.lengths.push_back(static_cast<int>(random() % 4));
      text += (i ? ", " : "") + std::to_string(form.lengths.back());
    }
    int extent = std::accumulate(form.lengths.begin(), form.lengths.end(), 0);
    if (extent == 0)
      continue;
    Spec operand;
    operand.kinds = {Kind::Replicate, Kind::Replicate};
    // The other axis cuts the dimension before, into blocks of that length.
    size_t other = axes[0] == 0 ? 1 : 0;
    bool outer = axes.size() == 1 && trial % 3 == 0;
    if (outer)
      operand.append(other, 0);
    int all = extent * static_cast<int>(outer ? grid.sizes[other] : 1);
    Tensor whole = random_tensor({all, 2}, random);
    Ranks held = distribute(grid, operand, whole, even, random);
    Ranks made = run(grid, *slice, form, axes, held);
    Sample sample{slice, axes, operand, -1, 0, ", splits = [" + text + "]", {extent, 2}, {}};
    for (size_t rank = 0; rank < grid.ranks(); ++rank) {
      Judged verdict = judge(grid, {sample}, rank)[0];
      INFO(sample.text(0) << "on rank " << rank);
      REQUIRE(verdict.findings.empty());
      std::optional<Tensor> found = assemble(grid, verdict.result, made);
      REQUIRE(found);
      CHECK(*found == whole);
      CHECK(std::equal(made[rank].shape.begin(), made[rank].shape.end(), verdict.shape.begin(),
                       verdict.shape.end()));
      bool same = std::equal(form.lengths.begin() + 1, form.lengths.end(), form.lengths.begin());
      CHECK(verdict.global_0 == (same ? std::nullopt : std::optional<int64_t>(all)));
    }
  }
}

} // namespace spmd::property
