// Types in the words of frameworks.
#include "ir/dialect/dialect.h"

#include "ir/input/input.h"

#include "tests/unit/catch.h"

namespace spmd::ir {
namespace {

std::string words(const char *mesh, const char *type, Dialect dialect) {
  Program program = std::move(
      read_text(std::string("mesh m { ") + mesh + " }\n%x = input " + type + "\n").program);
  REQUIRE(program.values.size() == 1);
  return print_kinds_in(program, program.types[program.values[ValueId{0}].declared], dialect);
}

} // namespace

TEST_CASE("a type in the words of each dialect") {
  const char *mesh = "dp = 2, tp = 4, cp = 2", *type = "f32[8@dp, 16] Reduced@tp P@cp";
  CHECK(words(mesh, type, Dialect::Spmd) == "S(0)@dp Reduced@tp P@cp");
  CHECK(words(mesh, type, Dialect::Jax) == "{V:dp, R:tp, U:cp}");
  CHECK(words(mesh, type, Dialect::DTensor) == "[Shard(0), Reduced(), Partial(sum)]");
  CHECK(words(mesh, type, Dialect::LTensor) == "variant={dp,cp} reduced={tp}");
  const char *other = "f32[8, 16] I@dp R@tp P(max)@cp";
  CHECK(words(mesh, other, Dialect::Jax) == "{R:tp, U_max:cp}");
  CHECK(words(mesh, other, Dialect::DTensor) ==
        "[Replicate(), Replicate(grad=Partial), Partial(max)]");
  CHECK(words(mesh, other, Dialect::LTensor) == "variant={cp} reduced={tp}");
}

TEST_CASE("axes of one dimension in mesh order and against it") {
  CHECK(words("dp = 2, tp = 4", "f32[16@(dp,tp)]", Dialect::DTensor) == "[Shard(0), Shard(0)]");
  CHECK(words("dp = 2, tp = 4", "f32[16@(tp,dp)]", Dialect::DTensor) ==
        "[_StridedShard(0, split_factor=4), Shard(0)]");
  CHECK(words("a = 2, b = 3, c = 5", "f32[4@(c,b,a)]", Dialect::DTensor) ==
        "[_StridedShard(0, split_factor=15), _StridedShard(0, split_factor=5), Shard(0)]");
}

TEST_CASE("what a dialect cannot say is in our words") {
  CHECK(words("tp = 4", "f32[8] V@tp", Dialect::DTensor) == "[[V@tp]]");
  CHECK(words("tp = 4", "f32[8] ?@tp", Dialect::Jax) == "{[?@tp]}");
  CHECK(words("tp = 4", "f32[8] R|I@tp", Dialect::DTensor) == "[Replicate()]");
}

TEST_CASE("what a dialect says is read back") {
  Program program =
      std::move(read_text("mesh m { a = 2, b = 3, c = 5 }\n%x = input f32[8] R\n").program);
  auto again = [&](Dialect dialect, const char *text) {
    llvm::Expected<Type> type = read_words(program, MeshId{0}, text, dialect);
    return type ? print_kinds_in(program, *type, dialect) : llvm::toString(type.takeError());
  };
  for (const char *text : {
           "[Shard(0), Shard(0), Shard(1)]",
           "[_StridedShard(0, split_factor=15), _StridedShard(0, split_factor=5), Shard(0)]",
           "[_StridedShard(1, split_factor=3), Shard(1), Replicate()]",
           "[Replicate(), Replicate(grad=Partial), Partial(max)]",
           "[Reduced(), Partial(sum), Partial(product)]",
           "[Partial(avg), [V@b], Shard(0)]",
       })
    CHECK(again(Dialect::DTensor, text) == text);
  for (const char *text : {"{V:a, R:b}", "{U_max:c}", "{}", "{V:a, [?@b]}"})
    CHECK(again(Dialect::Jax, text) == text);
  for (const char *text :
       {"variant={a,c} reduced={b}", "variant={} reduced={}", "variant={a} reduced={} [?@c]"})
    CHECK(again(Dialect::LTensor, text) == text);
  CHECK(again(Dialect::DTensor, "(Shard(dim=0), Replicate(), Partial())") ==
        "[Shard(0), Replicate(), Partial(sum)]");
}

TEST_CASE("words of a dialect that are none") {
  Program program = std::move(read_text("mesh m { a = 2, b = 3 }\n%x = input f32[8] R\n").program);
  auto why = [&](Dialect dialect, const char *text) {
    llvm::Expected<Type> type = read_words(program, MeshId{0}, text, dialect);
    return type ? std::string("read") : llvm::toString(type.takeError());
  };
  CHECK(why(Dialect::DTensor, "[Shard(0)]") == "1 placements for the 2 axes of the mesh");
  CHECK(why(Dialect::DTensor, "Shard(0)") == "`Shard(0)` is no list of placements");
  CHECK(why(Dialect::DTensor, "[Shard(), Shard(0)]") == "`Shard` names no dimension");
  CHECK(why(Dialect::DTensor, "[Split(0), Shard(0)]") ==
        "`Split` is none of Shard, _StridedShard, Replicate, Reduced, Partial");
  CHECK(why(Dialect::DTensor, "[_StridedShard(0, split_factor=2), Shard(0)]") ==
        "strided-shard: no axes outside of a on dimension 0 have 2 ranks");
  CHECK(why(Dialect::DTensor, "[[X@a], Shard(0)]") == "`[X@a]` is no kind of ours such as [V@tp]");
  CHECK(why(Dialect::Jax, "{V:z}") == "the mesh has no axis `z`");
  CHECK(why(Dialect::Jax, "{W:a}") == "`W` is none of V, R, U");
  CHECK(why(Dialect::LTensor, "variant={a} reduced={a}") == "`a` is in both sets");
  CHECK(why(Dialect::LTensor, "variant={a}") ==
        "`variant={a}` is not of the form variant={dp} reduced={tp}");
}

TEST_CASE("types of values in the words of the program read as they were") {
  auto again = [](const char *dialect, const char *type) {
    std::string text = std::string("trace { dialect = ") + dialect +
                       " }\nmesh m { dp = 2, tp = 4, cp = 2 }\n%x = input " + type + "\n";
    ReadResult read = read_text(text);
    INFO((read.errors.empty() ? std::string() : read.errors.front().message));
    REQUIRE(read.errors.empty());
    std::string printed = print_text_in_dialect(read.program);
    return std::string(llvm::StringRef(printed).rsplit("input ").second.trim());
  };
  for (const char *type : {"f32[8@dp, 16] {R:tp, U:cp}", "f32[8, 16] {V:dp, U_max:tp}",
                           "f32[8, 16] {}", "f32[4@dp] of [7] {}", "f32[8, 16] {U:tp} scale tp"})
    CHECK(again("jax", type) == type);
  for (const char *type : {"f32[8, 16] [Shard(0), Reduced(), Partial(sum)]",
                           "f32[2, 16] [_StridedShard(0, split_factor=4), Shard(0), Replicate()]",
                           "f32[8, 16] [Replicate(), Partial(avg), [V@cp]]",
                           "f32[8, 16] [Replicate(), Partial(avg), Shard(1)] scale dp"})
    CHECK(again("dtensor", type) == type);
  for (const char *type :
       {"f32[8, 16] variant={dp,cp} reduced={tp}", "f32[8, 16] variant={} reduced={} [?@cp]"})
    CHECK(again("ltensor", type) == type);
  // Kinds of ours may stand behind, and where not all axes are spoken of they do.
  CHECK(again("jax", "f32[8, 16] {V:dp} P@tp") == "f32[8, 16] {V:dp, U:tp}");
  CHECK(again("jax", "f32[8, 16] { requires_grad = false }") ==
        "f32[8, 16] {} { requires_grad = false }");
  CHECK(again("dtensor", "f32[8, 16] R@tp") == "f32[8, 16] R@tp");
}

TEST_CASE("what words lose is reported") {
  auto lost = [](const char *type, Dialect dialect) {
    Program program = std::move(
        read_text(std::string("mesh m { dp = 2, tp = 4 }\n%x = input ") + type + "\n").program);
    return describe_loss(program, program.types[program.values[ValueId{0}].declared], dialect);
  };
  CHECK(lost("f32[8@dp] Reduced@tp", Dialect::Jax) == "Reduced on tp is R");
  CHECK(lost("f32[8@dp] Reduced@tp", Dialect::DTensor).empty());
  CHECK(lost("f32[8@dp] P@tp", Dialect::LTensor) == "S(0) on dp is variant, P on tp is variant");
  CHECK(lost("f32[8] R@dp P@tp", Dialect::Jax).empty());
}

} // namespace spmd::ir
