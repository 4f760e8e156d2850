// What enters a run. Without files an element is a hash of the seed, of the name of the input and
// of its place in the whole tensor, so that a shard equals the slice of the whole and every rank,
// every mesh and every backend draws the same numbers.
#pragma once

#include "runtime/inputs/contents.h"
#include "runtime/plan/placement.h"
#include "runtime/plan/plan.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringMap.h"

#include <memory>
#include <string>

namespace llvm {
class MemoryBuffer;
}

namespace spmd::runtime {

class Backend;
struct StoredTensor;

struct InputOptions {
  uint64_t seed = 0;
  Domain domain = Domain::Declared;
  bool whole_numbers = false; // reals are small whole numbers, so that sums of them are exact
};

// What is wrong with one input.
struct InputProblem {
  std::string input; // of the program, or a file
  std::string text;
  std::optional<size_t> param; // whose; none: of none that the program has
};

// Files that stand for inputs; read once, used by every run.
class InputFiles {
public:
  InputFiles();
  ~InputFiles();
  // `NAME=FILE`, `NAME@RANK=FILE` (.npy), or `FILE` (.safetensors: all that have the name of a
  // parameter). NAME: of the value, with or without `%`, or the framework's path; RANK as meshes
  // count. Empty, or what is wrong.
  std::string add(const std::string &word);
  bool empty() const { return given_.empty(); }

private:
  friend class Inputs;
  struct GivenInput {
    std::string name, file;
    std::optional<int64_t> rank;
  };
  struct File {
    std::unique_ptr<llvm::MemoryBuffer> buffer;
    std::vector<StoredTensor> tensors; // of a .safetensors file
  };
  std::string open(const std::string &path);
  std::vector<GivenInput> given_;                             // .npy
  std::vector<std::pair<std::string, std::string>> archives_; // NAME or empty, FILE
  llvm::StringMap<File> opened_;
};

class Inputs {
public:
  // Problems: a file that does not fit, a name that is none of the program's, extents that are no
  // numbers.
  Inputs(checker::CheckedProgram &program, const World &world, const InputFiles &files);
  llvm::ArrayRef<InputProblem> problems() const { return problems_; }

  // What the rank holds of a parameter (by place in Program::params) at the start. The rank is on
  // the mesh of its type.
  Tensor on_rank(size_t param, RankId rank, const InputOptions &options) const;
  // These ranks, those together that hold the same.
  std::vector<std::vector<RankId>> ranks_by_part(size_t param, llvm::ArrayRef<RankId> ranks) const;
  // All that the ranks which the backend holds have at the start: what is the same on several of
  // them once. Errors are the visitor's, and end the visit.
  llvm::Error
  visit(const Backend &backend, const Plan &plan, const InputOptions &options,
        llvm::function_ref<llvm::Error(BufferId, llvm::ArrayRef<RankId>, Tensor)> visitor) const;
  // Writes them. Errors are the backend's.
  llvm::Error write_to(Backend &backend, const Plan &plan, const InputOptions &options) const;
  const Content &content(size_t param) const { return contents_[param]; }

private:
  struct Param {
    std::string name;
    std::optional<Placement> placement; // none: it holds no data
    ir::Type type;
    std::optional<Tensor> whole; // from a file
    // Where axes are local and the declaration says all the same which dimensions they cut: how a
    // file with the tensor of all ranks is cut.
    std::optional<Placement> cut;
    bool is_cut = false;                           // `whole` is such a file
    std::vector<std::pair<RankId, Tensor>> pieces; // from files, by rank
    std::pair<int64_t, int64_t> scale{1, 1};
  };
  void declare(const ir::Param &param);
  std::optional<Placement> declared_cut(const ir::Param &param) const;
  void take_files(const InputFiles &files);
  void take(const InputFiles::GivenInput &given, const InputFiles &files);
  void take_archive(const std::string &name, const std::string &file, const InputFiles &files);
  void set_whole(size_t param, const std::string &file, llvm::Expected<Tensor> tensor);
  std::optional<size_t> find(llvm::StringRef name) const;
  void problem(std::string input, std::string text, std::optional<size_t> param = std::nullopt);
  // Which part of the parameter a rank holds.
  std::vector<int64_t> part_of(size_t param, RankId rank) const;
  // Empty, or why the data cannot be those of this parameter.
  std::string fit(const Param &param, const Dims &dims, Tensor &tensor) const;

  const World &world_;
  ir::Program &program_;
  checker::CheckedProgram &checked_;
  std::vector<Content> contents_;
  std::vector<Param> params_;
  llvm::StringMap<size_t>
      by_name_; // positions in params_; with and without `%`, and the framework's name
  std::vector<InputProblem> problems_;
};

} // namespace spmd::runtime
