// Leaving out the words of a well-typed program loses nothing that its uses tell: random programs
// are checked without the words of their collectives, and again with the words that were found.
#include "checker/rewrite/annotate.h"
#include "ir/input/input.h"
#include "tests/unit/catch.h"

#include <fmt/core.h>

#include <random>
#include <string>
#include <vector>

namespace spmd::property {
namespace {

using checker::Annotation;
using checker::CheckResult;
using checker::InferredSrcDst;
using ir::WrittenKind;

constexpr unsigned kPrograms = 400, kStatements = 14, kTries = 70;

// `{0}`, `{1}`: operands; `{2}`: an axis.
constexpr const char *kTemplates[] = {
    "neg %{0}",
    "gelu %{0}",
    "add %{0}, %{1}",
    "mul %{0}, %{1}",
    "cat [%{0}, %{1}] {{ dim = 0 }}",
    "slice %{0} {{ dim = 0, start = 0, end = 8 }}",
    "where %{0}, %{1}, 0.0",
    "ge %{0}, %{1}",
    "matmul %{0}, %{1} {{ partial = {2} }}",
    "all_gather %{0} {{ axis = {2}, src = S(0), dst = R }}",
    "all_gather %{0} {{ axis = {2}, src = S(1), dst = I, dim = 1 }}",
    "all_reduce %{0} {{ axis = {2}, src = P, dst = R }}",
    "all_reduce %{0} {{ axis = {2}, src = P, dst = I }}",
    "all_reduce %{0} {{ axis = (dp, tp), src = P, dst = R }}",
    "all_reduce %{0} {{ axis = (dp, tp), src = P, dst = [I, R] }}",
    "all_reduce %{0} {{ axis = {2}, src = P, dst = I, op = avg }}",
    "all_reduce [%{0}, %{1}] {{ axis = {2}, src = P, dst = R }}",
    "reduce_scatter %{0} {{ axis = {2}, src = P, dst = S(0) }}",
    "broadcast %{0} {{ axis = {2}, src = V, dst = R, root = 0 }}",
    "broadcast %{0} {{ axis = {2}, src = V, dst = I, root = 0 }}",
    "convert %{0} {{ axis = {2}, src = I, dst = R }}",
    "convert %{0} {{ axis = {2}, src = R, dst = P }}",
    "reinterpret %{0} {{ axis = {2}, src = R, dst = V }}",
    "assert_type %{0} {{ axis = {2}, dst = R }}",
    "assert_type %{0} {{ axis = {2}, dst = I }}",
    "call %{0} {{ body = @act }}",
    "call %{0} {{ body = @reduced }}",
    "call %{0} {{ body = @whole }}",
    "call %{0}, %{1} {{ body = @scaled }}",
    "scan %{0}, %xs {{ carry = 1, body = @sum }}",
    "scan %{0}, %xs {{ carry = 1, body = @add }}",
};
constexpr const char *kHead = R"(trace { mode = local }
mesh m { dp = 2, tp = 4 }
func @act(%x: f32[8, 8]) {
  %y = gelu %x
  return %y
}
func @reduced(%x: f32[8, 8]) {
  %y = all_reduce %x { axis = tp, src = P, dst = R }
  %z = neg %y
  return %z
}
func @whole(%x: f32[8, 8]) {
  %y = all_reduce %x { axis = tp, src = P, dst = I }
  return %y
}
func @scaled(%x: f32[8, 8], %g: f32[8, 8]) {
  %y = mul %x, %g
  return %y
}
func @sum(%c: f32[8, 8], %x: f32[8, 8]) {
  %s = all_reduce %x { axis = tp, src = P, dst = I }
  %n = add %c, %s
  return %n
}
func @add(%c: f32[8, 8], %x: f32[8, 8]) {
  %n = add %c, %x
  return %n
}
%xs = input f32[5, 8, 8] I@dp P@tp
)";
constexpr const char *kInputs[] = {"P",         "V",         "R@dp P@tp", "I@dp P@tp",
                                   "P@dp R@tp", "P@dp I@tp", "V@dp P@tp", "I@dp R@tp"};

// The text without the words of collectives; `convert` and the like keep theirs.
std::string without_words(std::string_view text) {
  static constexpr std::string_view kCalls[] = {"all_reduce", "all_gather", "reduce_scatter",
                                                "broadcast"};
  std::string out;
  for (llvm::StringRef rest(text.data(), text.size()); !rest.empty();) {
    const llvm::StringRef line = rest.take_until([](char c) { return c == '\n'; });
    bool ends = line.size() < rest.size();
    rest = rest.drop_front(line.size() + ends);
    size_t first = line.find(", src = "), last = line.find(", ", line.find("dst = "));
    bool call = llvm::any_of(kCalls, [&](std::string_view name) {
      return line.find(llvm::StringRef(name.data(), name.size())) != llvm::StringRef::npos;
    });
    if (call && first != llvm::StringRef::npos) {
      out += line.substr(0, first).str();
      out += last == llvm::StringRef::npos ? " }" : line.substr(last).str();
    } else {
      out += line.str();
    }
    out += ends ? "\n" : "";
  }
  return out;
}

class Chain {
public:
  explicit Chain(unsigned seed, bool unstated = false) : random_(seed), unstated_(unstated) {
    text_ = unstated ? without_words(kHead) : kHead;
    for (; count_ < 6; ++count_)
      text_ += fmt::format("%{} = input f32[8, 8] {}\n", count_, kInputs[pick(std::size(kInputs))]);
    for (unsigned tries = 0, kept = 0; tries < kTries && kept < kStatements; ++tries)
      kept += extend();
  }
  const std::string &text() const { return text_; }

private:
  // Of programs without words some contradict themselves, and nothing else is wrong with them.
  bool keeps(const CheckResult &result) {
    bool contradicts = false;
    for (const checker::Finding &finding : result.findings) {
      contradicts |= finding.clash < result.clashes.size();
      if (finding.clash >= result.clashes.size() &&
          finding.info().severity == rules::Severity::Error)
        return false;
    }
    return !contradicts || (unstated_ && pick(4) == 0);
  }
  unsigned pick(size_t count) { return static_cast<unsigned>(random_() % count); }

  bool extend() {
    static constexpr const char *kAxes[] = {"dp", "tp"};
    // Later values are likelier: chains get long.
    unsigned first = std::max(pick(count_), pick(count_)), second = pick(count_);
    std::string statement = fmt::format(fmt::runtime(kTemplates[pick(std::size(kTemplates))]),
                                        first, second, kAxes[pick(2)]);
    bool pair = statement.find("all_reduce [") == 0;
    if (unstated_ && statement.find("(dp, tp)") != std::string::npos)
      return false; // one word per call: they are enumerated
    if (unstated_)
      statement = without_words(statement);
    std::string more =
        text_ +
        (pair ? fmt::format("%{}, %{}_b = ", count_, count_) : fmt::format("%{} = ", count_)) +
        statement + "\n";
    ir::ReadResult read = ir::read_text(more);
    REQUIRE(read.errors.empty());
    if (!keeps(checker::check(read.program)))
      return false;
    text_ = std::move(more);
    ++count_;
    return true;
  }

  std::mt19937 random_;
  bool unstated_;
  std::string text_;
  unsigned count_ = 0;
};

// The words of one instruction before they were left out: per axis of the mesh.
std::vector<std::optional<WrittenKind>> results_of(const ir::Program &program, ir::AttrsId attrs) {
  std::vector<std::optional<WrittenKind>> words(ir::kMaxAxes);
  const ir::AttrValue *axis = program.find(attrs, "axis"), *dst = program.find(attrs, "dst");
  const auto &refs = program.axis_refs[axis->as<ir::AxisRefsId>()].refs;
  for (size_t i = 0; i < refs.size(); ++i) {
    ir::AxisId id = *program.meshes[ir::MeshId{0}].find(refs[i].axis);
    const ir::AttrValue word =
        dst->form == ir::AttrForm::List ? program.lists[dst->as<ir::AttrListId>()].items[i] : *dst;
    words[id.index] = word.as_kind();
  }
  return words;
}

using Words = std::vector<std::pair<ir::InstId, std::vector<std::optional<WrittenKind>>>>;

// Takes the words off some of the collectives; what `dst` they had.
Words erase(ir::Program &program, std::mt19937 &random) {
  static constexpr llvm::StringRef kUnstated[] = {"all_reduce", "all_gather", "reduce_scatter",
                                                  "broadcast"};
  Words unstated;
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    ir::Inst &inst = program.insts[ir::InstId{i}];
    if (!llvm::is_contained(kUnstated, program.op_name(inst.op)) || random() % 4 == 0)
      continue;
    unstated.push_back({ir::InstId{i}, results_of(program, inst.attrs)});
    ir::AttrDict dict = program.attrs[inst.attrs];
    llvm::erase_if(dict.attrs, [&](const ir::Attr &attr) {
      llvm::StringRef key = program.strings[attr.key];
      return key == "src" || key == "dst";
    });
    inst.attrs = program.attrs.add(std::move(dict));
  }
  return unstated;
}

} // namespace

TEST_CASE(
    "words that uses determine come back, and the words that are found say the same as none") {
  unsigned unstated_words = 0, decided = 0, invariant = 0;
  for (unsigned seed = 1; seed <= kPrograms; ++seed) {
    Chain chain(seed);
    std::mt19937 random(seed);
    ir::ReadResult read = ir::read_text(chain.text());
    ir::Program &program = read.program;
    Words words = erase(program, random);
    INFO("seed " << seed << "\n" << chain.text());
    CheckResult found = checker::check(program);
    CHECK(found.clean()); // the words that were left out are a solution
    for (const InferredSrcDst &at : found.inferred)
      for (const auto &[inst, before] : words)
        if (inst == at.inst)
          for (ir::AxisId axis : at.word.axes) {
            ++unstated_words;
            if (at.why != InferredSrcDst::Why::Use)
              continue;
            ++decided;
            invariant += at.word.dst.kind == ir::Kind::Invariant;
            INFO("instruction " << inst.index << ", axis " << unsigned(axis.index));
            CHECK(at.word.dst.kind == before[axis.index]->kind);
          }
    for (const Annotation &each : checker::annotate(program, found))
      program.insts[each.inst].attrs = each.attrs;
    CheckResult again = checker::check(program);
    CHECK(again.clean());
    // A body that is called with R and with I shows one of them: values of the main body are
    // compared.
    for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
      for (uint32_t r = 0; r < program.insts[ir::InstId{i}].result_count; ++r) {
        uint32_t value = program.insts[ir::InstId{i}].result(r).index;
        INFO("value " << value);
        if (!program.types[found.types[value]].gradient_free())
          CHECK(found.types[value] == again.types[value]);
      }
  }
  CHECK(unstated_words > kPrograms);
  CHECK(decided > kPrograms / 2);
  CHECK(invariant > kPrograms / 20);
}

TEST_CASE("a program without words is refused exactly if no words suit it") {
  constexpr unsigned kMostWords = 6;
  unsigned refused = 0, accepted = 0;
  for (unsigned seed = 1; seed <= kPrograms; ++seed) {
    Chain chain(seed, true);
    ir::ReadResult read = ir::read_text(chain.text());
    ir::Program &program = read.program;
    CheckResult found = checker::check(program);
    std::vector<std::pair<ir::InstId, ir::AttrsId>> open;
    for (const Annotation &each : checker::annotate(program, found))
      if (each.words[0].why == InferredSrcDst::Why::Use ||
          each.words[0].why == InferredSrcDst::Why::NoUse)
        open.push_back({each.inst, program.insts[each.inst].attrs});
    if (open.size() > kMostWords)
      continue;
    bool suits = false;
    for (unsigned words = 0; words < 1u << open.size() && !suits; ++words) {
      for (size_t i = 0; i < open.size(); ++i) {
        ir::AttrDict dict = program.attrs[open[i].second];
        ir::Kind kind = words >> i & 1 ? ir::Kind::Invariant : ir::Kind::Replicate;
        dict.attrs.push_back(
            {program.strings.add("dst"), ir::AttrValue::kind(WrittenKind{.kind = kind})});
        ir::sort_canonically(dict, program.strings);
        program.insts[open[i].first].attrs = program.attrs.add(std::move(dict));
      }
      suits = checker::check(program).clean();
    }
    INFO("seed " << seed << "\n" << chain.text());
    CHECK(suits == found.clean());
    ++(suits ? accepted : refused);
  }
  CHECK(refused > 20);
  CHECK(accepted > 20);
}

} // namespace spmd::property
