// No bytes at all make the reader or the printer of the text form fail in another way than by an
// error.
#include "tests/unit/text_programs.h"

using namespace spmd::ir;
using namespace spmd::ir::text;

namespace {

// Deterministic, and good enough to pick positions.
struct Random {
  uint64_t state;
  uint64_t below(uint64_t bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return bound ? state % bound : 0;
  }
};

std::string mutate(std::string text, Random &random) {
  static constexpr std::string_view kBytes = "{}()[]%@\"\\,:=./|?-+*;\n \t0189azRSPVI_\xC3\xA9\xFF";
  for (uint64_t edits = 1 + random.below(3); edits > 0; --edits) {
    size_t at = random.below(text.size()), length = 1 + random.below(12);
    switch (random.below(4)) {
    case 0:
      text.erase(at, length);
      break;
    case 1:
      text.insert(random.below(text.size()), text.substr(at, length));
      break;
    case 2:
      text[at] = kBytes[random.below(kBytes.size())];
      break;
    default:
      text.insert(at, 1, kBytes[random.below(kBytes.size())]);
    }
    if (text.empty())
      text = "m";
  }
  return text;
}

// Whatever is read without errors is well formed, and prints as something that reads.
void check_bytes(const std::string &text) {
  ReadResult result = read_text(text);
  if (result.errors.size() > kMaxInputErrors)
    FAIL(text);
  if (!result.errors.empty() || !verify(result.program).empty())
    return;
  std::string printed = print_text(result.program);
  ReadResult again = read_text(printed);
  if (!again.errors.empty() || print_text(again.program) != printed)
    FAIL(describe(again.errors) << "of\n" << text << "printed as\n" << printed);
}

} // namespace

TEST_CASE("text: no bytes make the reader or the printer fail in another way") {
  std::string example(kExample);
  for (size_t length = 0; length <= example.size(); ++length)
    check_bytes(example.substr(0, length));

  std::vector<std::string> seeds = {example};
  for (std::string_view row : kCanonical)
    seeds.push_back(with_mesh(row));
  for (std::string_view row : kTables)
    seeds.emplace_back(row);
  for (const std::filesystem::path &path : case_files())
    if (std::filesystem::file_size(path) < 4096 && seeds.size() < 80)
      seeds.push_back(contents(path));
  Random random{0x5EED5EED5EED5EEDull};
  for (int i = 0; i < 20'000; ++i)
    check_bytes(mutate(seeds[i % seeds.size()], random));
  SUCCEED();
}
