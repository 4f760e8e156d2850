// Types in the words of frameworks.
#include "ir/dialect.h"

#include "ir/input.h"

#include "tests/unit/catch.h"

namespace spmd::ir {
namespace {

std::string words(const char *mesh, const char *type, Dialect dialect) {
  Program program = std::move(
      read_text(std::string("mesh m { ") + mesh + " }\n%x = input " + type + "\n").program);
  REQUIRE(program.values.size() == 1);
  return print_words(program, program.types[program.values[ValueId{0}].declared], dialect);
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
    return type ? print_words(program, *type, dialect) : llvm::toString(type.takeError());
  };
  for (const char *text : {
           "[Shard(0), Shard(0), Shard(1)]",
           "[_StridedShard(0, split_factor=15), _StridedShard(0, split_factor=5), Shard(0)]",
           "[_StridedShard(1, split_factor=3), Shard(1), Replicate()]",
           "[Replicate(), Replicate(grad=Partial), Partial(max)]",
           "[Reduced(), Partial(sum), Partial(product)]",
       })
    CHECK(again(Dialect::DTensor, text) == text);
  for (const char *text : {"{V:a, R:b}", "{U_max:c}", "{}"})
    CHECK(again(Dialect::Jax, text) == text);
  for (const char *text : {"variant={a,c} reduced={b}", "variant={} reduced={}"})
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
  CHECK(why(Dialect::DTensor, "[Partial(avg), Shard(0)]") ==
        "`Partial(avg)` is a sum of another scale: state it as `P` with `scale`");
  CHECK(why(Dialect::Jax, "{V:z}") == "the mesh has no axis `z`");
  CHECK(why(Dialect::Jax, "{W:a}") == "`W` is none of V, R, U");
  CHECK(why(Dialect::LTensor, "variant={a}") ==
        "`variant={a}` is not of the form variant={dp} reduced={tp}");
}

} // namespace spmd::ir
