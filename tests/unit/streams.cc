// Streams of records, torn ones, and compression around any encoding.
#include "tests/unit/json_sample.h"

#include "tests/unit/catch.h"

#include "ir/input/compression.h"

#include <random>

using namespace spmd::ir;

namespace {

constexpr std::string_view kHeader =
    R"~({"format": "spmd-trace", "version": "1.0", "meshes": [{"id": "m", "axes": [{"name": "tp", "size": 4}]}]})~";

std::string stream(std::string_view records) {
  return std::string(kHeader) + "\n" + std::string(records);
}

llvm::StringRef as_ref(std::string_view text) { return {text.data(), text.size()}; }

struct Case {
  std::string_view records, name, message, path;
  std::string_view at; // where the error is
};

// clang-format off
constexpr Case kCases[] = {
    {R"~({"op": "gelu", "in": ["%0"]}
{"end": {"op_count": 1}}
)~", "trace-reference", "`%0` is not defined before this use", "in[0]", "\"%0\""},
    {R"~({"op": "f", "out": [{"id": "%0"}]}
{"op": "f", "out": [{"id": "%0"}]}
{"end": {"op_count": 2}}
)~", "trace-duplicate", "`%0` is defined twice", "out[0].id", "\"%0\"}]}\n{\"end\""},
    {R"~({"def": {"scopes": 3}}
{"end": {"op_count": 0}}
)~", "trace-key", "a number stands where a list", "def.scopes", "3}}"},
    {R"~({"def": {"params": [{"id": "%0"}]}}
{"end": {"op_count": 0}}
)~", "trace-key", "`role` is missing", "def.params[0].role", "{\"id\""},
    {R"~({"op": "call", "regions": {"body": "@f"}}
{"def": {"functions": {"@f": {"params": [], "ops": [], "results": []}}}}
{"end": {"op_count": 1}}
)~", "trace-reference", "no function is named `@f`", "regions.body", "\"@f\"}"},
    {R"~({"op": "f"}
{"def": {"contexts": [{"mesh": "m", "grad": false}]}}
{"end": {"op_count": 1}}
)~", "trace-reference", "the first context stands after an op", "def.contexts", "[{\"mesh\": \"m\", \"grad\""},
    {R"~({"op": "f"}
{"end": {"op_count": 2}}
)~", "trace-truncated", "2 ops are announced, and 1", "end.op_count", "2}}"},
    {R"~({"end": {"op_count": 0}}
{"op": "f"}
)~", "trace-syntax", "text follows the `end` record", "", "{\"op\": \"f\"}"},
    {R"~({"def": {"functions": {"@": {"params": [], "ops": [], "results": []}}}}
{"end": {"op_count": 0}}
)~", "trace-key", "`@` is no name of a function", "def.functions.@", "{\"params\""},
    {R"~({"op": "f", "expect": [{"error": "loss-kind", "axes": [""]}]}
{"end": {"op_count": 1}}
)~", "trace-key", "`` is no name of an axis", "expect[0].axes[0]", "\"\"]"},
    {R"~({"op": "f", "attrs": {"axis": ""}}
{"end": {"op_count": 1}}
)~", "trace-key", "`` is no name of an axis", "attrs.axis", "\"\"}}"},
    {R"~({"op": "f", "attrs": {"axis": ["tp", "m.P"]}}
{"end": {"op_count": 1}}
)~", "trace-key", "`m.P` is no name of an axis", "attrs.axis[1]", "\"m.P\""},
    {R"~({"op": "f"}
7
{"end": {"op_count": 1}}
)~", "trace-key", "a number stands where an object", "", "7\n"},
    {R"~({"op": "f"}
{"op": "f", "in": [}
{"end": {"op_count": 1}}
)~", "trace-syntax", "`{` stands where `,` or `}` is needed", "in", "{\"end\""},
    {R"~({"op": "f"}
)~", "trace-truncated", "the stream ends after 1 op without an `end` record", "", ""},
    {R"~({"op": "f"}
{"op": "f", "out": [{"id": "%)~", "trace-truncated", "the stream ends after 1 op", "", "\"%"},
    {R"~({"op": "f"}
{"op": "f", "out": [{"id")~", "trace-truncated", "the stream ends after 1 op", "", "{\"op\": \"f\", \"out\""},
    {R"~({"op": "f"}
{"op": "f", "out": [{"id": "%0"}])~", "trace-truncated", "the stream ends after 1 op", "", "{\"op\": \"f\", \"out\""},
};
// clang-format on

} // namespace

TEST_CASE("streams: what is wrong with a record is said with its line and path") {
  for (const Case &each : kCases) {
    std::string text = stream(each.records);
    ReadResult result = read_program(text);
    INFO(each.records << described(result));
    REQUIRE(result.errors.size() == 1);
    const InputError &error = result.errors.front();
    CHECK(error.name == each.name);
    CHECK(error.path == each.path);
    CHECK(error.message.find(each.message) != std::string::npos);
    size_t at = text.find(each.at.empty() ? std::string_view("\0", 1) : each.at, kHeader.size());
    CHECK(error.offset == (at == std::string::npos ? text.size() : at));
    CHECK(result.truncated() == (each.name == "trace-truncated"));
  }
}

TEST_CASE("streams: a torn one keeps every whole record") {
  std::string text = stream("{\"def\": {\"params\": [{\"id\": \"%x\", \"role\": \"input\"}]}}\n"
                            "{\"op\": \"gelu\", \"in\": [\"%x\"], \"out\": [{\"id\": \"%0\"}]}\n"
                            "{\"op\": \"gelu\", \"in\": [\"%0\"], \"out\": [{\"id\": \"%1\"}]}\n"
                            "{\"end\": {\"op_count\": 2, \"outputs\": [{\"value\": \"%1\"}]}}\n");
  CHECK(read_program(text).errors.empty());
  size_t first = text.find("{\"op\""), second = text.find("{\"op\"", first + 1),
         end = text.find("{\"end\"");
  for (size_t size = kHeader.size() + 2; size + 1 < text.size(); ++size) {
    ReadResult result = read_program(as_ref(text).take_front(size));
    INFO(text.substr(0, size) << described(result));
    // The record is whole without its line feed.
    size_t whole = (size + 1 >= second) + (size + 1 >= end);
    REQUIRE(result.truncated());
    CHECK(result.program.insts.size() == whole);
    CHECK(verify(result.program).empty());
  }
}

TEST_CASE("streams: printed ones read back, whatever the mutation") {
  ReadResult sample = read_json(as_ref(kSample));
  REQUIRE(sample.errors.empty());
  std::string text = print_jsonl(sample.program);
  ReadResult again = read_json(text);
  INFO(described(again));
  REQUIRE(again.errors.empty());
  CHECK(print_jsonl(again.program) == text);
  CHECK(print_json(again.program) == print_json(sample.program));
  CHECK(format_of(text).name == "jsonl");
  CHECK(format_of(print_json(sample.program)).name == "json");
  std::mt19937 random(20261121);
  auto below = [&](size_t bound) { return random() % bound; };
  for (int i = 0; i < 5000; ++i) {
    std::string broken = text;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      size_t at = below(broken.size()), length = 1 + below(20);
      if (below(2))
        broken.erase(at, length);
      else
        broken.insert(below(broken.size()), broken.substr(at, length));
    }
    ReadResult result = read_json(broken);
    if (result.errors.size() > kMaxInputErrors)
      FAIL(broken);
    if ((result.errors.empty() || result.truncated()) && verify(result.program).empty())
      if (ReadResult third = read_json(print_jsonl(result.program)); !third.errors.empty())
        FAIL(broken << described(third));
  }
}

TEST_CASE("streams: what reads prints as what reads") {
  for (
      std::string_view records : {
          R"~({"def": {"contexts": [{}, {}], "functions": {"@t": {"ctx": 1, "params": [], "ops": [], "results": []}}}}
{"end": {"op_count": 0}}
)~",
          R"~({"def": {"params": [{"id": "%a", "role": "input", "dtype": "f16", "gshape": [6, 16], "type": {"tp": "V"}, "spec": [["tp"], null]}]}}
{"end": {"op_count": 0}}
)~",
          R"~({"op": "f", "attrs": {"mesh": "other"}}
{"end": {"op_count": 1}}
)~",
          R"~({"op": "f", "out": [{"id": "%/"}, {"id": "%-"}]}
{"end": {"op_count": 1}}
)~"}) {
    ReadResult result = read_json(stream(records));
    INFO(described(result));
    REQUIRE(result.errors.empty());
    for (auto print : {print_json, print_jsonl, print_text}) {
      ReadResult again = read_program(print(result.program));
      INFO(print(result.program) << described(again));
      CHECK(again.errors.empty());
      CHECK(print(again.program) == print(result.program));
    }
  }
}

TEST_CASE("compression: both kinds, members one after the other, damage and cuts") {
  std::string text = stream("{\"op\": \"f\"}\n{\"op\": \"f\"}\n{\"end\": {\"op_count\": 2}}\n");
  for (Compression kind : {Compression::Gzip, Compression::Zstd}) {
    std::string packed = pack(text, kind).value();
    CHECK(compression_of(packed) == kind);
    CHECK(unpack(packed).bytes == text);
    CHECK(read_program(packed).errors.empty());
    std::string twice =
        pack(text.substr(0, 100), kind).value() + pack(text.substr(100), kind).value();
    CHECK(unpack(twice).bytes == text);
    ReadResult nested = read_program(pack(packed, kind).value());
    REQUIRE(nested.errors.size() == 1);
    CHECK(nested.errors[0].name == "trace-encoding");
    for (size_t size = 4; size < packed.size(); ++size) {
      ReadResult result = read_program(as_ref(packed).take_front(size));
      REQUIRE(result.errors.size() == 1);
      CHECK((result.errors[0].name == "trace-truncated" ||
             result.errors[0].name == "trace-encoding"));
    }
    std::string damaged = packed;
    damaged[packed.size() / 2] ^= 0x55;
    damaged[packed.size() / 2 + 1] ^= 0x55;
    CHECK(!read_program(damaged).errors.empty());
  }
}

TEST_CASE("compression: what holds too much is refused before the memory is taken") {
  std::string zeros(size_t(160) << 20, ' ');
  for (Compression kind : {Compression::Gzip, Compression::Zstd}) {
    std::string packed = pack(zeros, kind).value();
    Unpacked result = unpack(packed);
    if (packed.size() * 200 + (uint64_t(64) << 20) >= zeros.size()) {
      CHECK(result.bytes.size() == zeros.size());
      continue;
    }
    CHECK(unpack(packed, 1000).errors.size() == 1);
    CHECK(unpack(packed, 1000).bytes.empty());
    REQUIRE(result.errors.size() == 1);
    CHECK(result.errors[0].name == "trace-limit");
    CHECK(result.bytes.size() <= packed.size() * 200 + (uint64_t(64) << 20));
  }
}
