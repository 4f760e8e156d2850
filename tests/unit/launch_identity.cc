// Which rank a process is, by the variables of each launcher.
#include "tests/unit/catch.h"

#include "runtime/launch/identity.h"

#include <map>
#include <string>

namespace spmd::runtime {
namespace {

using Variables = std::map<std::string, std::string>;

std::string printed(const Variables &variables) {
  llvm::Expected<Identity> found = identity_of([&](const char *name) -> const char * {
    auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
  if (!found)
    return llvm::toString(found.takeError());
  constexpr const char *kNames[] = {"", "torchrun", "Slurm", "mpirun"};
  return kNames[static_cast<unsigned>(found->launcher)] + std::string(" ") +
         std::to_string(found->rank) + "/" + std::to_string(found->size) + " local " +
         std::to_string(found->local_rank) + "/" + std::to_string(found->local_size) + " at " +
         found->host + ":" + std::to_string(found->port);
}

TEST_CASE("ranks by the variables of launchers", "[launch]") {
  CHECK(printed({}) == " 0/1 local 0/1 at :0");
  CHECK(printed({{"RANK", "5"},
                 {"WORLD_SIZE", "8"},
                 {"LOCAL_RANK", "1"},
                 {"LOCAL_WORLD_SIZE", "4"},
                 {"MASTER_ADDR", "node7"},
                 {"MASTER_PORT", "29500"},
                 {"OMPI_COMM_WORLD_RANK", "0"},
                 {"OMPI_COMM_WORLD_SIZE", "1"}}) == "torchrun 5/8 local 1/4 at node7:29501");
  Variables slurm = {{"SLURM_PROCID", "3"},
                     {"SLURM_NTASKS", "16"},
                     {"SLURM_LOCALID", "1"},
                     {"SLURM_STEP_NODELIST", "gpu[03-06],cpu1"},
                     {"SLURM_JOB_ID", "40123"}};
  // A shell within a job is no step of it.
  CHECK(printed(slurm) == " 0/1 local 0/1 at :0");
  slurm["SLURM_STEP_ID"] = "0";
  CHECK(printed(slurm) == "Slurm 3/16 local 1/1 at gpu03:20123");
  slurm["SPMD_STORE_PORT"] = "7000";
  slurm["SPMD_STORE_HOST"] = "10.0.0.1";
  CHECK(printed(slurm) == "Slurm 3/16 local 1/1 at 10.0.0.1:7000");
  CHECK(printed({{"OMPI_COMM_WORLD_RANK", "1"},
                 {"OMPI_COMM_WORLD_SIZE", "2"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}) == "mpirun 1/2 local 1/2 at :0");
  CHECK(printed({{"RANK", "x"}, {"WORLD_SIZE", "2"}}) == "RANK=x is no number");
  CHECK(printed({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) == "RANK=2 is no rank of WORLD_SIZE=2");
  CHECK(printed({{"SPMD_STORE_PORT", "70000"}}) == "70000 is no port");
}

TEST_CASE("the first host of a list", "[launch]") {
  CHECK(first_host("node[003-006,9],other") == "node003");
  CHECK(first_host("one,two") == "one");
  CHECK(first_host("gpu[7]") == "gpu7");
  CHECK(first_host("single") == "single");
  CHECK(first_host("") == "");
}

} // namespace
} // namespace spmd::runtime
