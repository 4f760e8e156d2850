// The JSON form: what reads and how it prints, and that no bytes at all make the reader fail in
// another way than by its errors, which json_errors.cc lists.
#include "tests/unit/json_sample.h"

#include "tests/unit/catch.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

using namespace spmd::ir;

namespace {

constexpr const char *kTraces = "tests/cases/ir/json";

std::string read_file(const std::filesystem::path &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void check_round_trip(const std::string &text) {
  ReadResult first = read_exactly(text);
  INFO(described(first));
  REQUIRE(first.errors.empty());
  CHECK(verify(first.program).empty());
  std::string printed = print_json(first.program);
  ReadResult second = read_exactly(printed);
  INFO(printed << described(second));
  REQUIRE(second.errors.empty());
  CHECK(print_json(second.program) == printed);
  std::string as_text = print_text(first.program);
  CHECK(print_text(second.program) == as_text);
  ReadResult third = read_text(as_text);
  INFO(as_text << described(third));
  REQUIRE(third.errors.empty());
  CHECK(print_json(third.program) == printed);
}

} // namespace

TEST_CASE("the sample traces read and print without loss") {
  unsigned count = 0;
  for (const auto &entry : std::filesystem::directory_iterator(kTraces)) {
    if (entry.path().extension() != ".json")
      continue;
    INFO(entry.path().string());
    check_round_trip(read_file(entry.path()));
    ++count;
  }
  CHECK(count >= 5);
}

TEST_CASE("every key reads and prints without loss") {
  check_round_trip(std::string(kSample));
  ReadResult result = read_exactly(kSample, {.strict_schema = true});
  CHECK(described(result) == "");
  CHECK(result.warnings.empty());
}

TEST_CASE("what the sample says is what the program holds") {
  Program program = read_exactly(kSample).program;
  CHECK(program.meshes[MeshId{1}].offset == 8);
  CHECK(program.insts.size() == 7);
  CHECK(program.contexts.size() == 2);
  const Inst &matmul = program.insts[program.main.first];
  llvm::ArrayRef<Operand> operands = program.operand_lists[matmul.operands];
  REQUIRE(operands.size() == 12);
  CHECK(operands[1].mut);
  CHECK(operands[11].mut); // `bias`, after ten operands by position and its name
  CHECK(program.phase == ProgramPhase::Step);
  CHECK(program.lacks(Missing::Locs));
  CHECK(program.op_name(matmul.op) == "matmul");
  CHECK(program.find(matmul.attrs, "partial")->form == AttrForm::Axes);
  const Inst &assertion = program.insts[InstId{program.main.first.index + 1}];
  CHECK(program.find(assertion.attrs, "type")->form == AttrForm::Claim);
  CHECK(program.find(assertion.attrs, "shape") == nullptr);
}

TEST_CASE("a newer minor version and unknown keys draw warnings") {
  ReadResult newer =
      read_exactly(replaced(R"~("version": "1.0")~", R"~("version": "1.7", "novel": [1])~"));
  CHECK(newer.errors.empty());
  REQUIRE(newer.warnings.size() == 1);
  CHECK(newer.warnings[0].name == "trace-newer");
  std::string text = replaced(R"~("role": "data")~", R"~("purpose": "data")~");
  CHECK(read_exactly(text).warnings.empty());
  ReadResult strict = read_exactly(text, {.strict_schema = true});
  REQUIRE(strict.warnings.size() == 1);
  CHECK(strict.warnings[0].path == "meshes[0].axes[0].purpose");
  CHECK(strict.warnings[0].offset == text.find("\"purpose\""));
}

// Members of the whole document in the opposite order, ops first.
TEST_CASE("tables may come in any order") {
  std::vector<std::string> members;
  int depth = 0;
  bool quoted = false;
  std::string member;
  for (size_t i = 1; i + 1 < kSample.size(); ++i) {
    char c = kSample[i];
    quoted ^= c == '"' && kSample[i - 1] != '\\';
    depth += !quoted && (c == '{' || c == '[');
    depth -= !quoted && (c == '}' || c == ']');
    if (!quoted && depth == 0 && c == ',')
      members.push_back(std::exchange(member, ""));
    else
      member += c;
  }
  members.push_back(member);
  CHECK(members.size() > 20);
  std::string text = "{";
  for (size_t i = members.size(); i-- > 0;)
    text += members[i] + (i ? "," : "}");
  ReadResult result = read_exactly(text);
  INFO(described(result));
  REQUIRE(result.errors.empty());
  CHECK(print_json(result.program) == print_json(read_exactly(kSample).program));
}

TEST_CASE("keys may be written with escapes and blanks, and are repeated all the same") {
  const std::string same = print_json(read_exactly(kSample).program);
  const std::string_view from = R"~({"op": "scale", "in": ["%1"])~";
  ReadResult escaped =
      read_exactly(replaced(from, R"~({"o\u0070" : "scale", "\u0069n"	: [ "%1" ])~"));
  INFO(described(escaped));
  REQUIRE(escaped.errors.empty());
  CHECK(print_json(escaped.program) == same);
  ReadResult repeated =
      read_exactly(replaced(from, R"~({"op": "scale", "o\u0070": "gelu", "in": ["%1"])~"));
  REQUIRE(repeated.errors.size() == 1);
  CHECK(repeated.errors[0].message.find("`op` is repeated") != std::string::npos);
}

TEST_CASE("names of digits are kept as they are written") {
  for (std::string_view name :
       {"%3", "%03", "%999999999", "%1234567890", "%12345678901234567890", "%3.1", "%\\u0033"}) {
    INFO(name);
    ReadResult result = read_exactly(
        replaced(R"~("out": [{"id": "%3"}])~", fmt::format(R"~("out": [{{"id": "{}"}}])~", name)));
    INFO(described(result));
    REQUIRE(result.errors.empty());
    const std::string printed = print_json(result.program);
    CHECK(printed.find(name == "%\\u0033" ? "%3" : name) != std::string::npos);
    CHECK(print_json(read_exactly(printed).program) == printed);
  }
}

TEST_CASE("no bytes make the reader fail in another way") {
  for (size_t size = 0; size < kSample.size(); ++size)
    REQUIRE(!read_exactly(kSample.substr(0, size)).errors.empty());
  std::mt19937 random(20260721);
  constexpr std::string_view kPieces[] = {
      "\"",    "{",    "}",          "[",  "]",    ",",    ":",  "null", "-1",
      "1e999", "%0",   "@body",      "\\", "\xFF", "S(9)", "{}", "[]",   "18446744073709551616",
      "\"*\"", "true", "\"type\": ", " "};
  unsigned accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text(kSample);
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      size_t at = random() % text.size(), length = random() % 12;
      std::string_view piece = kPieces[random() % std::size(kPieces)];
      switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.replace(at, length, piece);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), length));
        break;
      }
    }
    ReadResult result = read_exactly(text);
    for (const InputError &error : result.errors)
      REQUIRE(error.offset <= text.size());
    if (!result.errors.empty())
      continue;
    ++accepted;
    INFO(text);
    REQUIRE(verify(result.program).empty());
    std::string printed = print_json(result.program);
    REQUIRE(print_json(read_exactly(printed).program) == printed);
  }
  CHECK(accepted > 100);
}
