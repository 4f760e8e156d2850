// Inputs of runs: shards are slices of one tensor, addends are never 0, indices are in range, files
// are cut as types say, and what does not fit is refused with the reason.
#include "runtime/inputs/inputs.h"
#include "runtime/inputs/npy.h"
#include "runtime/inputs/safetensors.h"
#include "runtime/reference/meaning.h"

#include "ir/input/input.h"

#include "tests/unit/catch.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

using namespace spmd;
using runtime::Domain;
using runtime::InputFiles;
using runtime::InputOptions;
using runtime::Inputs;
using runtime::Tensor;

namespace {

checker::CheckedProgram checked(std::string_view text) {
  ir::ReadResult read = ir::read_text(llvm::StringRef(text.data(), text.size()));
  REQUIRE(read.errors.empty());
  std::optional<checker::CheckedProgram> program =
      checker::check_and_lower(std::move(read.program));
  REQUIRE(program.has_value());
  return std::move(*program);
}
checker::CheckedProgram checked_file(const char *path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  return checked(text);
}

// A program with its ranks and inputs.
struct Run {
  checker::CheckedProgram program;
  runtime::World world;
  InputFiles files = {};
  std::optional<Inputs> inputs = {};

  explicit Run(checker::CheckedProgram made)
      : program(std::move(made)), world(llvm::cantFail(runtime::World::make(program.program()))) {}
  explicit Run(std::string_view text) : Run(checked(text)) {}
  void take() { inputs.emplace(program, world, files); }
  Tensor on(size_t param, runtime::RankId rank, InputOptions options = {}) {
    return inputs->on_rank(param, rank, options);
  }
  // What all ranks mean together.
  runtime::Meaning meant(size_t param, InputOptions options = {}) {
    ir::ValueId value = program.program().params[param].value;
    auto how = llvm::cantFail(runtime::Distribution::make(program.program(), program.known(value)));
    std::vector<Tensor> held;
    for (runtime::RankId rank = 0; rank < world.size(); ++rank)
      held.push_back(on(param, rank, options));
    std::vector<const Tensor *> pointers;
    for (const Tensor &tensor : held)
      pointers.push_back(&tensor);
    return how.denote(pointers);
  }
  std::string problems() const {
    std::string text;
    for (const runtime::InputProblem &problem : inputs->problems())
      text += problem.input + ": " + problem.text + "\n";
    return text;
  }
};

// A folder that goes away.
struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "spmd_inputs_test";
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return (path / name).string();
  }
};

Tensor counted(ir::DType dtype, runtime::Dims dims) {
  Tensor tensor = Tensor::make(dtype, std::move(dims), Domain::Declared);
  for (size_t i = 0; i < tensor.of<double>().size(); ++i)
    tensor.of<double>()[i] = static_cast<double>(i);
  return tensor;
}

} // namespace

TEST_CASE("a shard is the slice of the whole, whatever the mesh", "[inputs]") {
  for (InputOptions options : {InputOptions{.seed = 3},
                               {.seed = 3, .domain = Domain::Field},
                               {.seed = 3, .whole_numbers = true}}) {
    Run whole("mesh m { tp = 4 }\n%x = input f32[8, 6] R\n%y = neg %x\n");
    Run cut("mesh m { tp = 4 }\n%x = input f32[2@tp, 6]\n%y = neg %x\n");
    Run both("mesh m { dp = 3, tp = 2 }\n%x = input f32[4@tp, 2@dp]\n%y = neg %x\n");
    whole.take(), cut.take(), both.take();
    CHECK(bool(whole.on(0, 0, options) == whole.on(0, 3, options)));
    CHECK(bool(cut.meant(0, options).pieces.at(0) == whole.on(0, 0, options)));
    CHECK(bool(both.meant(0, options).pieces.at(0) == whole.on(0, 0, options)));
    CHECK_FALSE(
        bool(whole.on(0, 0, options) == whole.on(0, 0, {.seed = 4, .domain = options.domain})));
  }
}

TEST_CASE("uneven shards, lists and addends", "[inputs]") {
  Run uneven("mesh m { tp = 4 }\n%x = input f32[4@tp] of [14]\n%y = neg %x\n");
  uneven.take();
  CHECK(uneven.on(0, 3).dims == runtime::Dims{2});
  CHECK(uneven.meant(0).pieces.at(0).dims == runtime::Dims{14});
  Run list("trace { mode = local }\nmesh m { tp = 3 }\n%x = input f32[8] V\n%y = neg %x\n");
  list.take();
  CHECK_FALSE(bool(list.on(0, 0) == list.on(0, 1)));
  CHECK(list.meant(0).pieces.size() == 3);
  Run sum("mesh m { tp = 3 }\n%x = input f32[40] P\n%n = input i32[40] P\n%y = neg %x\n");
  sum.take();
  for (bool whole : {false, true})
    for (runtime::RankId rank = 0; rank < 3; ++rank)
      for (size_t param : {0, 1}) {
        Tensor addend = sum.on(param, rank, {.seed = 1, .whole_numbers = whole});
        for (double cell : addend.of<double>())
          CHECK(cell != 0);
      }
}

TEST_CASE("indices are in range and meet every block; an offset reaches over all ranks",
          "[inputs]") {
  Run run(checked_file("examples/vocab_parallel/good.spmd"));
  run.take();
  // 32 words on each of 4 ranks.
  for (size_t param : {0, 1}) {
    CHECK(run.inputs->content(param).form == runtime::ContentForm::Index);
    CHECK(run.inputs->content(param).limit == 128);
    for (Domain domain : {Domain::Declared, Domain::Field}) {
      std::set<int64_t> blocks;
      Tensor ids = run.on(param, 0, {.seed = 5, .domain = domain});
      for (int64_t i = 0; i < ids.size(); ++i) {
        auto at = static_cast<size_t>(i);
        int64_t id = domain == Domain::Field ? ids.of<runtime::Residue>()[at].number()
                                             : static_cast<int64_t>(ids.of<double>()[at]);
        CHECK(id >= 0);
        CHECK(id < 128);
        blocks.insert(id / 32);
      }
      CHECK(blocks.size() == 4);
    }
  }
}

TEST_CASE("contents follow from uses", "[inputs]") {
  Run run("mesh m { tp = 2 }\n"
          "%a = input f32[4] R\n%b = input f32[4] R\n%c = input bool[4] R\n%d = input f32[6, 4] R\n"
          "%w = param f32[4, 16] R\n%i = input i64[3] R\n%o = input i32[2] R\n%s = input f32[4] R\n"
          "%1 = log %a\n%2 = div %1, %b\n%3 = masked_fill %2, %c, 0.0\n%4 = argmax %d { dim = 1 }\n"
          "%5 = matmul %d, %w\n%6 = index_select %d, %i { dim = 0 }\n%7 = reshape %s { shape = [2, "
          "2] }\n"
          "%8 = sqrt %7\n");
  run.take();
  using runtime::ContentForm;
  auto form = [&](size_t param) { return run.inputs->content(param).form; };
  CHECK(form(0) == ContentForm::Positive);
  CHECK(form(1) == ContentForm::Nonzero);
  CHECK(form(2) == ContentForm::Truth);
  CHECK(form(3) == ContentForm::Distinct);
  CHECK(run.inputs->content(4).factor == 0.5);
  CHECK(form(5) == ContentForm::Index);
  CHECK(run.inputs->content(5).limit == 6);
  CHECK(form(6) == ContentForm::Free);
  CHECK(form(7) == ContentForm::Positive);
  const Tensor drawn = run.on(7, 0);
  for (double cell : drawn.of<double>())
    CHECK(cell > 0);
}

TEST_CASE("files are cut as the type says, and mean what they hold", "[inputs]") {
  Folder folder;
  std::string x = folder.write("x.npy", runtime::print_npy(counted(ir::DType::F32, {8, 3})));
  std::string program = "mesh m { tp = 4 }\n"
                        "%x = input f32[2@tp, 3]\n%p = input f32[8, 3] P\n%n = input i64[4] P\n"
                        "%w = param f32[2, 2] R \"layer.weight\"\n%y = neg %x\n";
  Tensor whole = counted(ir::DType::I64, {4}), weight = counted(ir::DType::F32, {2, 2});
  std::string n = folder.write("n.npy", runtime::print_npy(whole));
  std::string archive =
      folder.write("w.safetensors", runtime::print_safetensors({{"layer.weight", &weight}}));
  for (Domain domain : {Domain::Declared, Domain::Field}) {
    Run run(program);
    for (const std::string &word : {"%x=" + x, "p=" + x, "n=" + n, archive})
      REQUIRE(run.files.add(word) == "");
    run.take();
    REQUIRE(run.problems() == "");
    InputOptions options{.domain = domain};
    auto same = [&](const Tensor &got, const Tensor &want) {
      for (size_t i = 0; i < static_cast<size_t>(want.size()); ++i)
        CHECK((got.is_modular() ? got.of<runtime::Residue>()[i].number()
                                : static_cast<int64_t>(got.of<double>()[i])) ==
              static_cast<int64_t>(want.of<double>()[i]));
    };
    same(run.meant(0, options).pieces.at(0), counted(ir::DType::F32, {8, 3}));
    same(run.meant(1, options).pieces.at(0), counted(ir::DType::F32, {8, 3}));
    same(run.meant(2, options).pieces.at(0), whole);
    same(run.on(3, 1, options), weight);
  }
}

TEST_CASE("files that do not fit are refused with the reason", "[inputs]") {
  Folder folder;
  auto why = [&](const std::string &type, const Tensor &tensor, const std::string &as = "x") {
    Run run("mesh m { tp = 2 }\n%x = input " + type + "\n%y = neg %x\n");
    std::string file = folder.write("f.npy", runtime::print_npy(tensor));
    std::string problem = run.files.add(as + "=" + file);
    run.take();
    problem += run.problems();
    size_t at = problem.find(file);
    return at == std::string::npos ? problem : problem.replace(at, file.size(), "F");
  };
  Tensor good = counted(ir::DType::F32, {4});
  CHECK(why("f32[4] R", good) == "");
  CHECK(why("f32[5] R", good) == "F: it holds f32[4], and %x is f32[5]\n");
  CHECK(why("f64[4] R", good) == "F: it holds f32[4], and %x is f64[4]\n");
  CHECK(why("f32[4] R", good, "z") == "F: the program has no input `z`\n");
  CHECK(why("f32[4] R", good, "x@7") == "F: %x is not on rank 7\n");
  CHECK(why("f32[4] R", good, "x@1") ==
        "%x: data of rank 0 are missing; those of other ranks are given\n");
  Tensor not_a_number = good, fine = good;
  not_a_number.of<double>()[2] = std::nan("");
  CHECK(why("f32[4] R", not_a_number) == "F: its element [2] is not finite\n");
  CHECK(why("bf16[4] R", good) == "");
  fine.of<double>()[3] = 1.001953125; // no bf16 has so many digits
  CHECK(why("bf16[4] R", fine) == "F: its element [3] is no bf16\n");
  InputFiles files;
  CHECK(files.add("x=/nowhere.npy") == "/nowhere.npy: no such file or directory");
  CHECK(files.add("x") == "`x` has not the form NAME=FILE, NAME@RANK=FILE or FILE.safetensors");
}
