// Transitions on an axis that a region made local, of values that another axis shards: along the
// local axis the value is a list, and what is accepted does to the list of whole tensors what its
// row says; what is refused since a dimension is not whole would not.
#include "tests/property/grid.h"

#include "checker/check.h"
#include "ir/input/input.h"
#include "tests/unit/catch.h"

namespace spmd::property {
namespace {

using ir::Kind;
using rules::Layouts;
using rules::Transition;

struct Sample {
  const Transition *row;
  Form form;
  Spec operand; // axis a: the list
  std::vector<int> whole;
};

bool is_exchange(const Transition &row) { return row.collective == rules::Collective::AllToAll; }
bool cuts(const Transition &row) {
  return row.collective == rules::Collective::ReduceScatter ||
         row.local_step == rules::LocalStep::TakeOwnSlice;
}

std::string attributes(const Sample &sample) {
  const Transition &row = *sample.row;
  const Form &form = sample.form;
  bool shard = form.shard && row.layouts == Layouts::StackOrShard;
  size_t from = is_exchange(row) ? form.join : form.dim,
         to = is_exchange(row) ? form.split : form.dim;
  std::string text = "axis = a, src = " + word(row.src, shard ? static_cast<int>(from) : -1) +
                     ", dst = " + word(row.dst, shard ? static_cast<int>(to) : -1) +
                     ", expert = true";
  if (row.layouts == Layouts::StackOrShard && !shard && is_exchange(row))
    text += ", split_dim = " + std::to_string(form.split) +
            ", concat_dim = " + std::to_string(form.join);
  else if (row.layouts == Layouts::StackOrShard && !shard)
    text += ", dim = " + std::to_string(form.dim);
  if (row.collective == rules::Collective::Broadcast ||
      row.local_step == rules::LocalStep::KeepOnRoot)
    text += ", root = " + std::to_string(form.root);
  return text;
}

// Extents on which the call is defined for what one rank holds.
std::vector<int> whole_shape(const Grid &grid, const Transition &row, const Form &form,
                             const Spec &operand) {
  std::vector<int> shape = shape_for(row, form, grid.sizes[0], 2);
  for (size_t dim = 0; dim < shape.size(); ++dim)
    shape[dim] *= static_cast<int>(grid.count(operand.axes_on(static_cast<int>(dim))));
  return shape;
}

std::vector<Sample> samples_of(const Grid &grid, const Transition &row, std::mt19937 &random) {
  std::vector<Sample> samples;
  for (const Form &form : forms_of(row, grid.sizes[0], 2, random))
    for (int dim : {-1, 0, 1})
      for (Kind kind : {Kind::Replicate, Kind::Partial, Kind::Varying}) {
        if ((kind == Kind::Varying) != (dim >= 0))
          continue;
        Spec operand;
        operand.kinds = {row.src, kind};
        operand.dims = {-1, dim};
        samples.push_back({&row, form, operand, whole_shape(grid, row, form, operand)});
      }
  return samples;
}

std::string text_of(const Grid &grid, const std::vector<Sample> &samples) {
  std::string inputs = "mesh m { a = " + std::to_string(grid.sizes[0]) +
                       ", b = " + std::to_string(grid.sizes[1]) + " }\n";
  std::string calls = "local (a) {\n";
  for (size_t i = 0; i < samples.size(); ++i) {
    std::vector<int> local = samples[i].whole;
    for (size_t dim = 0; dim < local.size(); ++dim)
      local[dim] /= static_cast<int>(grid.count(samples[i].operand.axes_on(static_cast<int>(dim))));
    std::string number = std::to_string(i);
    inputs += "%x" + number + " = input " + type_text(samples[i].operand, local) + "\n";
    calls += "%y" + number + " = " + std::string(samples[i].row->name()) + " %x" + number + " { " +
             attributes(samples[i]) + " }\n";
  }
  return inputs + calls + "}\n";
}

// Per place along a, what the ranks along b hold together.
std::optional<Ranks> assemble_each(const Grid &grid, Spec spec, const Ranks &held) {
  Ranks list;
  spec.kinds[0] = Kind::Replicate;
  spec.dims[0] = -1;
  for (size_t a = 0; a < grid.sizes[0]; ++a) {
    auto first = held.begin() + static_cast<ptrdiff_t>(a * grid.sizes[1]);
    std::optional<Tensor> one =
        assemble(Grid{{1, grid.sizes[1]}}, spec,
                 Ranks(first, first + static_cast<ptrdiff_t>(grid.sizes[1])));
    if (!one)
      return std::nullopt;
    list.push_back(*one);
  }
  return list;
}

struct Outcome {
  Ranks operand, made;           // per rank
  std::optional<Ranks> expected; // along a: none where the call has no meaning for whole tensors
};

Outcome carry_out(const Grid &grid, const Sample &sample, std::mt19937 &random) {
  Outcome outcome;
  Ranks list = random_ranks(sample.row->src, grid.sizes[0], sample.whole, random);
  Spec spread = sample.operand;
  spread.kinds[0] = Kind::Replicate;
  Ranks like_first;
  for (const Tensor &each : list) {
    // Where values are equal along a, so are the addends.
    bool repeats = ir::info(sample.row->src).denotes == ir::Denotation::Same && !like_first.empty();
    Ranks row =
        repeats ? like_first : distribute(Grid{{1, grid.sizes[1]}}, spread, each, even, random);
    like_first = row;
    outcome.operand.insert(outcome.operand.end(), row.begin(), row.end());
  }
  outcome.made = run(grid, *sample.row, sample.form, {0}, outcome.operand);
  size_t dim = is_exchange(*sample.row) ? sample.form.split : sample.form.dim;
  bool unbinds = !sample.form.shard && sample.row->layouts == Layouts::StackOrShard &&
                 (cuts(*sample.row) || is_exchange(*sample.row));
  if (!unbinds || sample.whole[dim] == static_cast<int>(grid.sizes[0]))
    outcome.expected = run(Grid{{grid.sizes[0], 1}}, *sample.row, sample.form, {0}, list);
  return outcome;
}

} // namespace

TEST_CASE("along a local axis a transition moves whole tensors, whatever shards them") {
  std::mt19937 random(41);
  size_t accepted = 0, refused = 0;
  for (Grid grid : {Grid{{2, 2}}, Grid{{2, 3}}, Grid{{3, 2}}})
    for (const Transition &row : rules::transitions()) {
      if (row.collective == rules::Collective::Permute)
        continue; // as broadcast: nothing happens to dimensions
      std::vector<Sample> samples = samples_of(grid, row, random);
      ir::ReadResult read = ir::read_program(text_of(grid, samples));
      for (const ir::InputError &error : read.errors)
        FAIL(error.name << " " << error.line << " " << error.message);
      ir::Program &program = read.program;
      checker::CheckResult result = checker::check(program, {});
      std::vector<std::vector<std::string>> findings(samples.size());
      for (const checker::Finding &finding : result.findings)
        findings[finding.place.index].emplace_back(finding.info().name);
      for (uint32_t i = 0; i < samples.size(); ++i) {
        INFO(text_of(grid, {samples[i]}));
        ir::ValueId value = program.insts[ir::InstId{i}].first_result;
        Spec spec = spec_of(program.types[result.types[value.index]]);
        Outcome outcome = carry_out(grid, samples[i], random);
        if (findings[i].empty()) {
          REQUIRE(outcome.expected);
          std::optional<Ranks> found = assemble_each(grid, spec, outcome.made);
          REQUIRE(found);
          CHECK(*found == *outcome.expected);
          ++accepted;
          continue;
        }
        CHECK(findings[i] == std::vector<std::string>{"unwhole-dimension"});
        for (int dim = 0; dim < static_cast<int>(outcome.made[0].rank()); ++dim) {
          spec.kinds = {row.dst, Kind::Varying};
          spec.dims = {-1, dim};
          std::optional<Ranks> found = assemble_each(grid, spec, outcome.made);
          CHECK((!found || !outcome.expected || *found != *outcome.expected));
        }
        ++refused;
      }
    }
  CHECK(accepted > 300);
  CHECK(refused > 40);
}

} // namespace spmd::property
