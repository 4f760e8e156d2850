// How source lines are cut and marked, and how amounts and counts are worded.
#include "checker/render/render.h"

#include "llvm/ADT/STLExtras.h"

#include "tests/unit/catch.h"

using namespace spmd::checker;

TEST_CASE("marks stand below the code points that they mean") {
  Excerpt plain = excerpt("h = gelu(x)", 5, 12, 100);
  CHECK(plain.line == "h = gelu(x)");
  CHECK(plain.marks == "    ^^^^^^^");
  CHECK(excerpt("gr\xC3\xB6\xC3\x9F"
                "e = f(x)",
                9, 10, 100)
            .marks == "        ^");
  CHECK(excerpt("h = gelu(x)", 5, 0, 100).marks == "    ^");
  CHECK(excerpt("h = gelu(x)", 0, 0, 100).marks.empty());
}

TEST_CASE("wide characters and tabs move the marks") {
  CHECK(excerpt("\ty = 1", 2, 3, 100).line == "    y = 1");
  CHECK(excerpt("\ty = 1", 2, 3, 100).marks == "    ^");
  CHECK(excerpt("\xE5\xAD\x97 = x", 5, 6, 100).marks == "     ^");
}

TEST_CASE("what a terminal would act on is replaced") {
  CHECK(excerpt("a\x1B[2Jb", 0, 0, 100).line == "a?[2Jb");
  CHECK(excerpt("a\xFF"
                "b",
                0, 0, 100)
            .line == "a?b");
  CHECK(printable("a\nb\x7F") == "a\\nb\\u007f");
  CHECK(printable("\xE2\x80\xAE\xC2\x85") == "\\u202e\\u0085");
  CHECK(printable("\xF3\xA0\x81\x81") == "\\udb40\\udc41");
  CHECK(printable("\xFFz\xC3\xA9") == "\\xffz\xC3\xA9");
  CHECK(printable(printable("a\nb")) == printable("a\nb"));
}

TEST_CASE("long lines are cut around the mark") {
  std::string line(300, 'x');
  line[250] = 'y';
  Excerpt shown = excerpt(line, 251, 252, 40);
  CHECK(shown.line.size() <= 40);
  CHECK(shown.line.substr(0, 3) == "...");
  CHECK(shown.line[shown.marks.size() - 1] == 'y');
  CHECK(excerpt(line, 1, 2, 40).line.size() <= 40);
  CHECK(excerpt(line, 1, 2, 0).line == line);
}

TEST_CASE("columns beyond the line, and empty lines, are survived") {
  CHECK(excerpt("", 1, 2, 40).marks == "^");
  CHECK(excerpt("abc", 90, 95, 40).line == "abc");
  CHECK(excerpt("abc", 3, 2, 40).marks == "  ^");
}

TEST_CASE("bytes are worded in the unit that fits") {
  CHECK(print_bytes(0) == "0 B");
  CHECK(print_bytes(1023) == "1023 B");
  CHECK(print_bytes(3 << 20) == "3.0 MiB");
  CHECK(print_bytes((int64_t(1) << 30) - 1) == "1.0 GiB");
}

TEST_CASE("counts are worded as a sentence would") {
  CHECK(counts_line({.inputs = 1, .ops = 4}) == "no findings in 4 ops");
  CHECK(counts_line({.inputs = 1, .ops = 1496, .errors = 3, .warnings = 1, .suppressed = 2}) ==
        "3 errors, 1 warning in 1496 ops (2 suppressed)");
  CHECK(counts_line({.inputs = 2, .ops = 1, .unknown_ops = 1}) ==
        "no findings in 1 op of 2 inputs, 0.0 % of the ops typed");
  CHECK(counts_line({.inputs = 1, .ops = 3, .suppressed = 1, .not_selected = 2}) ==
        "no findings in 3 ops (1 suppressed, 2 not selected)");
}

TEST_CASE("what was not judged stands behind the counts") {
  CHECK(counts_line({.inputs = 1, .ops = 4, .values = 9, .unknown_values = 1}) ==
        "no findings in 4 ops; 1 of 9 values has an unknown kind on some axis");
  CHECK(counts_line({.inputs = 1, .ops = 4, .errors = 1, .values = 9, .unknown_values = 9}) ==
        "1 error in 4 ops; 9 of 9 values have an unknown kind on some axis");
  CHECK(counts_line({.inputs = 1, .unjudged = 1}) == "nothing was judged in 0 ops");
  CHECK(counts_line({.inputs = 2, .ops = 4, .unjudged = 1}) ==
        "no findings in 4 ops of 2 inputs; nothing was judged in 1 input");
  CHECK(counts_line({.inputs = 2, .unread = 1, .ops = 4, .one_rank = 1}) ==
        "no findings in 4 ops of 2 inputs, 1 input not read; no mesh axis has more than one rank, "
        "so kinds were not judged");
  CHECK(counts_line({.inputs = 1, .ops = 4, .unchecked_ops = 2, .uncalled_ops = 1}) ==
        "no findings in 4 ops; checking is off for 2 ops; 1 op is in a function that nothing calls "
        "and was not checked");
}

TEST_CASE("every group of findings has members") {
  for (const FindingGroup &group : finding_groups()) {
    INFO(group.name);
    CHECK(llvm::any_of(spmd::rules::all_violations(), [&](const spmd::rules::DiagnosticInfo *row) {
      return group.contains(*row);
    }));
  }
}

TEST_CASE("every format has a name of its own") {
  for (const Renderer &row : renderers())
    CHECK(find_renderer(row.name) == &row);
  CHECK(find_renderer("none") == nullptr);
}
