// Every op row with sharded operands against execution: from its equation, with an arbitrary
// function for `f` and an arbitrary linear map along whole factors.
#include "tests/property/plan_meaning.h"

#include "rules/ops/registry.h"
#include "tests/property/row_samples.h"
#include "tests/unit/catch.h"

#include <algorithm>
#include <bit>

namespace spmd::property {
namespace {

using rules::Equation;
using rules::OpDef;

// Attributes of a row and extents of its factors; `{g}`: what one rank holds of factor g.
struct RowSetting {
  std::string_view name, attrs, extents;
};
constexpr RowSetting kSettings[] = {
    {"repeat_interleave", "dim = -1, repeats = 2", "r=2"},
    {"glu", "dim = -1", "d=4 e=2"},
    {"diff", "dim = -1", "d=3 e=2"},
    {"cumulative_trapezoid", "dim = -1", "d=3 e=2"},
    {"convolution", "", "h=3 w=2 r=2 s=2 p=2 q=1"},
    {"convolution_grouped", "groups = {g}", "i=2 o=2 h=3 w=2 r=2 s=2 p=2 q=1"},
    {"avg_pool", "kernel_size = [2, 2]", "h=4 w=2 p=2 q=1"},
    {"max_pool", "kernel_size = [2, 2]", "h=4 w=2 p=2 q=1"},
    {"interpolate", "output_size = [3, 4]", "p=3 q=4"},
    {"affine_grid", "size = [{b}, 2, 4, 3]", "h=4 w=3 d=2 e=3"},
    {"interpolate_backward", "input_size = [{...}, 4, 2], output_size = [3, 1]",
     "h=4 w=2 p=3 q=1"},
    {"reflection_pad_backward", "pad = [1, 1]", "d=2 e=4"},
    {"replication_pad_backward", "pad = [1, 1]", "d=2 e=4"},
    {"glu_backward", "dim = -1", "d=4 e=2"},
    {"avg_pool_backward", "kernel_size = [2, 2]", "h=4 w=2 p=2 q=1"},
    {"max_pool_backward", "kernel_size = [2, 2]", "h=4 w=2 p=2 q=1"},
    {"histc", "bins = 3", "v=3"},
    {"topk", "dim = -1, k = 2", "d=3 e=2"},
    {"one_hot", "num_classes = 3", "v=3"},
    {"embedding_dense_backward", "num_weights = 3", "v=3"},
    {"embedding_bag_backward", "num_weights = 3", "v=3"},
    {"unfold", "dim = -1, size = 2, step = 1", "d=3 p=2 r=2"},
    {"unfold_backward", "dim = 1, size = 2, step = 1, input_sizes = [{...}, 3]", "d=3 p=2 r=2"},
    {"value_selecting_backward", "dim = -1, sizes = [{...}, 3]", "d=3"},
    {"pixel_shuffle", "upscale_factor = 2", "r=2 s=2"},
    {"pixel_unshuffle", "downscale_factor = 2", "r=2 s=2"},
    {"channel_shuffle", "groups = {g}", "c=2"},
    {"group_norm", "num_groups = {g}", "c=2"},
    {"native_group_norm", "num_groups = {g}", "c=2"},
    {"group_norm_backward", "num_groups = {n}", "c=2"},
    {"reflection_pad", "pad = [1, 1]", "d=2 e=4"},
    {"replication_pad", "pad = [1, 1]", "d=2 e=4"},
    {"circular_pad", "pad = [1, 1]", "d=2 e=4"},
    {"as_strided", "size = [2, 2], stride = [2, 1]", ""},
    {"multinomial", "num_samples = 2", "k=2"},
    {"pivots_to_permutation", "permutation_size = 3", "m=3"},
};

const RowSetting *setting_of(std::string_view row) {
  for (const RowSetting &setting : kSettings)
    if (setting.name == row)
      return &setting;
  return nullptr;
}

// Rows that are not run, since they have no operands, random values, or results whose dimensions
// cannot be determined.
struct Unmeant {
  std::string_view name, reason;
};
constexpr std::string_view kRandom = "its values are random", kNothing = "it has no operands",
                           kUnwrittenResults = "its results are several, of dimensions not written";
constexpr Unmeant kUnmeant[] = {
    {"alpha_dropout", kRandom},  {"bernoulli", kRandom},       {"binomial", kRandom},
    {"dropout", kRandom},        {"gumbel_softmax", kRandom},  {"multinomial", kRandom},
    {"normal", kRandom},         {"poisson", kRandom},         {"random", kRandom},
    {"random_key", kRandom},     {"random_like", kRandom},     {"rrelu", kRandom},
    {"constant", kNothing},      {"zeros", kNothing},          {"eig", kUnwrittenResults},
    {"eigh", kUnwrittenResults}, {"lstsq", kUnwrittenResults}, {"lu", kUnwrittenResults},
    {"qr", kUnwrittenResults},   {"svd", kUnwrittenResults},   {"solve_ex", kUnwrittenResults},
    {"dropout_off", kRandom},
    {"recurrent_layer", kUnwrittenResults},
};

class RowCase {
public:
  // `reduction`: empty, or a word of a loss. `one`: the operand from 1 on whose first dimension of
  // `...` has extent 1, 0 for none.
  RowCase(const OpDef &row, uint32_t absent, unsigned rest, int extent, std::string reduction,
          unsigned one)
      : row_(row), equation_(row.equation.equation),
        meaning_(equation_, plan(row, absent, rest, extent, reduction == "none", one),
                 reduction.empty() || reduction == "mean",
                 row.constant == OpDef::Constant::Zero ? 0 : 7, equation_.result_count) {
    const RowSetting *setting = setting_of(row.name);
    attrs_ = setting ? std::string(setting->attrs) : row.placed.empty() ? "" : "dim = -1";
    if (!reduction.empty())
      attrs_ = "reduction = \"" + reduction + "\"";
    case_.name = case_.op = std::string(row.name);
    case_.results = equation_.result_count;
    case_.meaning = &meaning_;
    case_.attrs = [this](const std::vector<std::vector<int>> &local) { return attributes(local); };
    if (attrs_.find('{') != std::string::npos)
      case_.fits = [this](const std::vector<std::vector<int>> &local) {
        return meaning_.extents(local).has_value();
      };
    add_tensors();
    write_operands();
  }
  RowCase(const RowCase &) = delete;
  const OpCase &op() const { return case_; }
  // One operand has extent 1 where another is longer.
  bool broadcasts() const {
    bool one = false, more = false;
    for (const TensorPlan *tensor : meaning_.tensors())
      for (const std::vector<uint8_t> &dim : tensor->dims) {
        one |= dim.empty();
        more |= dim == std::vector<uint8_t>{rules::kRestFactor};
      }
    return one && more && row_.rest_from.empty() && equation_.sum_count == 1;
  }

private:
  static ShapePlan plan(const OpDef &row, uint32_t absent, unsigned rest, int extent, bool kept,
                        unsigned one) {
    const Equation &equation = row.equation.equation;
    ShapePlan plan = plan_as_written(equation, absent, rest);
    for (size_t f = 0; f < plan.extents.size(); ++f)
      plan.extents[f] = plan.whole[f] ? 2 : extent;
    const RowSetting *setting = setting_of(row.name);
    llvm::StringRef left = setting
                               ? llvm::StringRef(setting->extents.data(), setting->extents.size())
                               : llvm::StringRef();
    while (!left.empty()) {
      auto [word, more] = left.split(' ');
      auto [name, number] = word.split('=');
      unsigned value = 0;
      number.getAsInteger(10, value);
      plan.extents[equation.find_factor({name.data(), name.size()})] = static_cast<int>(value);
      left = more;
    }
    if (one)
      for (TensorPlan &member : plan.operands[one - 1])
        for (std::vector<uint8_t> &dim : member.dims)
          if (dim == std::vector<uint8_t>{rules::kRestFactor} && !plan.whole[rules::kRestFactor])
            dim.clear();
    for (unsigned s = 0; kept && s < equation.sum_count; ++s)
      if (plan.results[s].dims.empty()) // in the backward of a loss they are there
        keep_samples(equation, equation.terms[equation.sums[s].first_term].divisors,
                     plan.results[s], rest);
    return plan;
  }
  // Not reduced, a loss has the dimensions that its mean divides by.
  static void keep_samples(const Equation &equation, rules::FactorSet divisors, TensorPlan &result,
                           unsigned rest) {
    for (uint8_t f = 0; f < equation.factor_count; ++f)
      if (divisors >> f & 1)
        result.dims.push_back({f});
    for (unsigned i = 0; divisors >> rules::kRestFactor & 1 && i < rest; ++i)
      result.dims.push_back({static_cast<uint8_t>(rules::kRestFactor + i)});
  }
  void add_tensors() {
    for (unsigned i = 0; i < equation_.operand_count; ++i) {
      bool integer = false, shape_only = false, value = false;
      for (unsigned r = 0; r < equation_.ref_count; ++r)
        if (const rules::Ref &ref = equation_.refs[r]; ref.operand == i) {
          integer |= ref.role == rules::RefRole::Condition;
          (ref.role == rules::RefRole::ShapeOnly ? shape_only : value) = true;
        }
      for (const TensorPlan &member : meaning_.shapes().operands[i]) {
        OpOperand operand{{}, integer, shape_only, !value};
        for (const std::vector<uint8_t> &dim : member.dims) {
          operand.dims.push_back(1);
          for (uint8_t factor : dim)
            operand.dims.back() *= meaning_.shapes().extents[factor];
        }
        case_.tensors.push_back(std::move(operand));
      }
    }
  }
  void write_operands() {
    std::vector<std::string> texts;
    size_t at = 0;
    for (unsigned i = 0; i < equation_.operand_count; ++i) {
      std::string text;
      size_t count = meaning_.shapes().operands[i].size();
      for (size_t k = 0; k < count; ++k)
        text += (k ? ", %" : "%") + std::to_string(at++);
      bool list = equation_.operands[i].list != rules::ListForm::Single;
      texts.push_back(!count ? "null" : list ? "[" + text + "]" : text);
    }
    rules::ResolvedOp op = rules::resolve_spelling({row_.name.data(), row_.name.size()}, "spmd");
    std::vector<std::string> ordered = texts;
    if (!op.order.empty()) {
      ordered.clear();
      for (uint8_t operand : op.order)
        if (operand < texts.size())
          ordered.push_back(texts[operand]);
    }
    while (!ordered.empty() && ordered.back() == "null")
      ordered.pop_back();
    for (size_t i = 0; i < ordered.size(); ++i)
      case_.operands += (i ? ", " : "") + ordered[i];
  }
  std::string attributes(const std::vector<std::vector<int>> &local) const {
    std::vector<int> extents = meaning_.extents(local).value_or(meaning_.shapes().extents);
    std::string text;
    for (size_t i = 0; i < attrs_.size(); ++i) {
      if (attrs_[i] != '{') {
        text += attrs_[i];
        continue;
      }
      size_t end = attrs_.find('}', i);
      std::string_view name = std::string_view(attrs_).substr(i + 1, end - i - 1);
      text +=
          std::to_string(extents[name == "..." ? rules::kRestFactor : equation_.find_factor(name)]);
      i = end;
    }
    return text;
  }

  const OpDef &row_;
  const Equation &equation_;
  PlanMeaning meaning_;
  std::string attrs_;
  OpCase case_;
};

// All optional operands there, or none.
std::vector<uint32_t> absences(const Equation &equation) {
  uint32_t optional = 0;
  for (unsigned i = 0; i < equation.operand_count; ++i)
    optional |= equation.operands[i].optional ? 1u << i : 0;
  return optional ? std::vector<uint32_t>{0, optional} : std::vector<uint32_t>{0};
}

std::vector<const char *> reductions(const OpDef &row, uint32_t absent) {
  if (!row.reduces)
    return {""};
  // A mean with weights is another row.
  if (row.choose && absent == 0 && row.name != "margin_losses")
    return {"sum", "none"};
  return {"mean", "sum", "none"};
}

template <class Visit> void each_row(Visit visit) {
  for (llvm::ArrayRef<OpDef> family : rules::op_families())
    for (const OpDef &row : family)
      visit(row);
}

bool has_dims(const OpDef &row) {
  const Equation &equation = row.equation.equation;
  for (unsigned k = 0; k < equation.result_count; ++k)
    if (!equation.results[k].has_dims)
      return false;
  return !equation.has_generator;
}

// Refused although data do not speak against some type of the results.
constexpr NeedlessEntry kUndetermined[] = {
    {"attention_varlen", "no-shard-rule", "its dimensions are left to the program"},
    {"diag_embed", "no-shard-rule", "likewise"},
    {"diagonal", "no-shard-rule", "likewise"},
    {"fft_", "no-shard-rule", "likewise"},
    {"fractional_max_pool", "no-shard-rule", "likewise"},
    {"quantile", "no-shard-rule", "likewise"},
    {"repeat_interleave_counts", "no-shard-rule", "likewise"},
};
constexpr NeedlessEntry kNeedless[] = {
    {kDonated, "", "its shards join, on purpose"},
    {"convolution_grouped", "spec-mismatch", "one group per rank reads as no groups"},
};

constexpr NeedlessEntry kNeedlessUneven[] = {
    {"im2col", "strided-uneven", "the extent of the inner part of the channels is not known"},
};

constexpr NeedlessEntry kNeedlessBroadcast[] = {
    {kDonated, "", "its shards join, on purpose"},
};

constexpr NeedlessEntry kNeedlessSamples[] = {
    {kDonated, "", "its shards join, on purpose"},
};

bool gives_shape_only(const OpDef &row, size_t operand) {
  const Equation &equation = row.equation.equation;
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (equation.refs[r].operand == operand && equation.refs[r].role == rules::RefRole::ShapeOnly)
      return true;
  return false;
}

void run_rows(ShardCheck &check, int extent, size_t most, bool broadcasts) {
  each_row([&](const OpDef &row) {
    if (!has_dims(row))
      return;
    const Equation &equation = row.equation.equation;
    unsigned rest = equation.factor_count == 0 ? 2 : 1;
    // Loops over many factors are long.
    int cut = equation.factor_count > 4 ? std::min(extent, 4) : extent;
    for (uint32_t absent : absences(equation))
      for (const char *reduction : reductions(row, absent))
        for (unsigned one = 0; one <= (broadcasts ? equation.operand_count : 0u); ++one) {
          RowCase made(row, absent, rest, cut, reduction, one);
          if (one == 0 ? !broadcasts : made.broadcasts())
            check.run(made.op(), most);
        }
  });
}

} // namespace

TEST_CASE("op rows that are not run with sharded operands are known") {
  std::set<std::string_view> sampled, found;
  for (const RowSample &sample : row_samples())
    sampled.insert(read_sample(sample).row->name);
  each_row([&](const OpDef &row) {
    if (!has_dims(row) && (row.equation.equation.has_generator || !sampled.count(row.name)))
      found.insert(row.name);
  });
  for (const Unmeant &entry : kUnmeant) {
    INFO(entry.name);
    CHECK(found.erase(entry.name));
  }
  for (std::string_view name : found)
    FAIL_CHECK(name << " is not run");
}

TEST_CASE("op rows with sharded operands say how their results join") {
  ShardCheck pairs({2}, 1), triples({3}, 2), grid({2, 2}, 3), wide({2, 3}, 11);
  run_rows(pairs, 4, 200, false);
  run_rows(triples, 3, 200, false);
  run_rows(grid, 4, 100, false);
  run_rows(wide, 6, 30, false);
  check_needless({&pairs, &triples, &grid, &wide}, {kUndetermined, kNeedless});
}

TEST_CASE("op rows with unevenly sharded operands say how their results join") {
  ShardCheck pairs({2}, 4, true), triples({3}, 5, true), grid({2, 2}, 6, true);
  run_rows(pairs, 5, 100, false);
  run_rows(triples, 4, 100, false);
  run_rows(grid, 5, 40, false);
  ShardCheck stated({2}, 12, true, true), stated_grid({2, 2}, 13, true, true);
  run_rows(stated, 5, 100, false);
  run_rows(stated_grid, 5, 40, false);
  check_needless({&pairs, &triples, &grid, &stated, &stated_grid},
                 {kUndetermined, kNeedlessUneven});
}

TEST_CASE("op rows with sharded operands that broadcast say how their results join") {
  ShardCheck pairs({2}, 7), grid({2, 2}, 8);
  run_rows(pairs, 2, 100, true);
  run_rows(grid, 4, 40, true);
  check_needless({&pairs, &grid}, {kNeedlessBroadcast});
}

TEST_CASE("op rows with attributes and sharded operands say how their results join") {
  ShardCheck pairs({2}, 9), grid({2, 2}, 10);
  for (const RowSample &sample : row_samples()) {
    ReadSample read = read_sample(sample);
    if (read.row->equation.equation.has_generator)
      continue;
    PlanMeaning meaning(read.row->equation.equation, read.plan, true, 7, read.results);
    meaning.reorder(read.order);
    auto [left, right] = llvm::StringRef(sample.statement).split('=');
    auto [call, attrs] = right.trim().split('{');
    auto [op, operands] = call.split(' ');
    std::string written = attrs.rsplit('}').first.trim().str();
    OpCase made;
    made.name = sample.statement;
    made.op = op.str();
    made.operands = operands.trim().str();
    made.local = true;
    made.results = read.results;
    made.meaning = &meaning;
    made.attrs = [&](const std::vector<std::vector<int>> &) { return written; };
    for (size_t i = 0; i < read.inputs.size(); ++i)
      made.tensors.push_back({read.inputs[i], read.integer[i], gives_shape_only(*read.row, i),
                              gives_shape_only(*read.row, i)});
    pairs.run(made, 300);
    grid.run(made, 100);
  }
  check_needless({&pairs, &grid}, {kNeedlessSamples});
}

} // namespace spmd::property
