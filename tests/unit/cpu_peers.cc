// Ranks that reach one another through messages, here between threads, hold the bits that ranks of
// one process hold, where every element is a double: random collectives, in chains and between
// computations, of every element type, with infinities, numbers below the normal ones and NaN.
#include "runtime/backends/peers.h"
#include "runtime/tensor/element_bytes.h"

#include "tests/unit/run_program.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>

namespace spmd::runtime {
namespace {

using ir::DType;

// --- messages between threads

class Mail {
public:
  void send(RankId from, RankId to, const void *data, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    bytes_ += bytes;
    boxes_[{from, to}].emplace_back(static_cast<const char *>(data), bytes);
    arrived_.notify_all();
  }
  std::string receive(RankId from, RankId to) {
    std::unique_lock lock(mutex_);
    std::deque<std::string> &box = boxes_[{from, to}];
    arrived_.wait(lock, [&] { return !box.empty(); });
    std::string message = std::move(box.front());
    box.pop_front();
    return message;
  }
  uint64_t bytes() const { return bytes_; } // that were sent

private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<RankId, RankId>, std::deque<std::string>> boxes_;
  uint64_t bytes_ = 0;
};

class ThreadPeers final : public Peers {
public:
  ThreadPeers(Mail &mail, RankId rank) : mail_(mail), rank_(rank) {}
  RankId rank() const override { return rank_; }
  llvm::Error prepare(const Plan &plan, const World &world) override {
    for (RankId rank = 0; rank < world.size(); ++rank)
      all_.push_back(rank);
    for (const Communicator &each : plan.communicators.all()) {
      Groups groups = world.groups(each.mesh, each.axes);
      llvm::ArrayRef<RankId> own = groups[groups.group_of(rank_)];
      members_.emplace_back(own.begin(), own.end());
    }
    return llvm::Error::success();
  }
  llvm::Error at(uint32_t) override { return llvm::Error::success(); }
  llvm::Error all_gather(CommunicatorId group, const void *own, void *all,
                         llvm::ArrayRef<uint64_t> bytes) override {
    const std::vector<RankId> &members = of(group);
    auto place = static_cast<size_t>(llvm::find(members, rank_) - members.begin());
    for (RankId member : members)
      mail_.send(rank_, member, own, bytes[place]);
    auto *to = static_cast<char *>(all);
    for (size_t i = 0; i < members.size(); ++i)
      to = take(members[i], to, bytes[i]);
    return llvm::Error::success();
  }
  llvm::Error exchange(CommunicatorId group, llvm::ArrayRef<SpmdSend> sends,
                       llvm::ArrayRef<SpmdReceive> receives) override {
    for (const SpmdSend &send : sends)
      mail_.send(rank_, of(group)[send.position], send.data, send.bytes);
    for (const SpmdReceive &receive : receives)
      take(of(group)[receive.position], static_cast<char *>(receive.data), receive.bytes);
    return llvm::Error::success();
  }

private:
  const std::vector<RankId> &of(CommunicatorId group) const {
    return group.valid() ? members_[group.index] : all_;
  }
  char *take(RankId from, char *to, uint64_t bytes) {
    std::string message = mail_.receive(from, rank_);
    if (message.size() != bytes) {
      fmt::print(stderr, "{} bytes where {} were awaited\n", message.size(), bytes);
      std::abort(); // no thread of several may throw
    }
    return std::copy(message.begin(), message.end(), to);
  }

  Mail &mail_;
  RankId rank_;
  std::vector<RankId> all_;
  std::vector<std::vector<RankId>> members_; // by communicator
};

// --- programs

using Random = std::mt19937_64;
template <class T> const T &one_of(Random &random, std::initializer_list<T> list) {
  return *(list.begin() + random() % list.size());
}

struct Sample {
  std::string text;
  std::vector<std::string> values; // that vary
  unsigned made = 0;
};

// A statement about a value that varies; `ranks` on the axis.
void add_statement(Random &random, Sample &sample, std::string_view axis, unsigned ranks,
                   bool is_complex) {
  const std::string from = sample.values[random() % sample.values.size()];
  std::string name = fmt::format("%y{}", sample.made++);
  auto says = [&](std::string_view op, std::string_view rest) {
    sample.text += fmt::format("{} = {} {} {{ axis = {}, {} }}\n", name, op, from, axis, rest);
  };
  const std::string order = one_of<std::string>(random, {"max", "min"});
  const std::string narrower = one_of<std::string>(random, {"", "", ", op_dtype = bf16"});
  unsigned root = static_cast<unsigned>(random() % ranks);
  switch (random() % (is_complex ? 7 : 9)) {
  case 0:
    says("reinterpret", "src = V, dst = P");
    sample.text +=
        fmt::format("{0}r = all_reduce {0} {{ axis = {1}, src = P, dst = R{2}{3} }}\n", name, axis,
                    one_of<std::string>(random, {"", ", op = avg"}), is_complex ? "" : narrower);
    sample.text += fmt::format("output {}r\n", name);
    return;
  case 1:
    says("reinterpret", "src = V, dst = P");
    sample.text += fmt::format("{0}s = reduce_scatter {0} {{ axis = {1}, src = P, dst = S(0) }}\n",
                               name, axis);
    sample.text += fmt::format("output {}s\n", name);
    return;
  case 2:
    says("all_gather", one_of<std::string>(random, {"src = V, dst = R", "src = S(1), dst = R"}));
    break;
  case 3:
    says("broadcast", fmt::format("root = {}, src = V, dst = R", root));
    break;
  case 4:
    says("collective_permute",
         fmt::format("perm = [[{}, {}]], src = V, dst = V", root, random() % ranks));
    sample.values.push_back(name);
    break;
  case 5:
    says("all_to_all", "src = S(0), dst = S(1)");
    break;
  case 6: // of what was received
    sample.text += fmt::format("{} = add {}, {}\n", name, from, from);
    sample.values.push_back(name);
    break;
  default:
    says("all_reduce", fmt::format("op = {}, src = V, dst = R", order));
  }
  sample.text += fmt::format("output {}\n", name);
}

std::string program(Random &random, DType dtype) {
  const unsigned ranks = one_of(random, {2u, 2u, 3u, 4u});
  const bool two_axes = random() % 3 == 0;
  const uint64_t rows = ranks * (1 + random() % 3);
  const uint64_t columns = ranks * one_of<uint64_t>(random, {1, 3, 700});
  Sample sample;
  sample.text = fmt::format("trace {{ mode = local }}\nmesh m {{ {}tp = {} }}\n",
                            two_axes ? "dp = 2, " : "", ranks);
  sample.text += fmt::format("%x = input {}[{}, {}] V {{ requires_grad = false }}\n",
                             ir::info(dtype).word, rows, columns);
  sample.values = {"%x"};
  const bool is_complex = ir::info(dtype).form == ir::DTypeClass::Complex;
  for (uint64_t i = 0; i < 1 + random() % 6; ++i)
    add_statement(random, sample, "tp", ranks, is_complex);
  return sample.text;
}

// Any bits; of integers that cells cannot hold, small ones.
Tensor any(Random &random, DType dtype, const Dims &dims, Domain domain) {
  Tensor tensor = Tensor::make(dtype, dims, domain);
  if (domain == Domain::Field) {
    for (Residue &cell : tensor.of<Residue>())
      cell = Residue(static_cast<int64_t>(random() % 1000));
    return tensor;
  }
  const unsigned bytes = ir::info(dtype).bytes;
  std::string packed(static_cast<size_t>(tensor.size()) * bytes, '\0');
  for (char &byte : packed)
    byte = static_cast<char>(random());
  for (size_t i = 0; i < packed.size(); i += bytes)
    if (random() % 2 || dtype == DType::I64 || dtype == DType::U64)
      std::fill_n(packed.begin() + static_cast<ptrdiff_t>(i + 1), bytes - 1, '\0');
  ok(unpack_elements(packed, tensor));
  return tensor;
}

bool same(const Tensor &a, const Tensor &b) {
  if (a.dtype != b.dtype || a.dims != b.dims)
    return false;
  return a.visit([&](const auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    const std::vector<T> &others = b.of<T>();
    // Of two NaN, which one their sum is, the compiler chooses.
    auto equal = [](double x, double y) {
      return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y) ||
             (std::isnan(x) && std::isnan(y));
    };
    for (size_t i = 0; i < cells.size(); ++i)
      if constexpr (std::is_same_v<T, Residue>) {
        if (cells[i] != others[i])
          return false;
      } else if constexpr (std::is_same_v<T, Complex>) {
        if (!equal(cells[i].real(), others[i].real()) || !equal(cells[i].imag(), others[i].imag()))
          return false;
      } else if (!equal(cells[i], others[i])) {
        return false;
      }
    return cells.size() == others.size();
  });
}

// What all outputs are, by rank and place.
using Outputs = std::vector<std::vector<Tensor>>;

Outputs alone(Planned &run, const std::vector<Tensor> &inputs, CpuOptions options) {
  CpuRun cpu(run, options);
  REQUIRE(cpu.problem() == "");
  for (RankId rank = 0; rank < run.world->size(); ++rank)
    cpu.write(run.plan->params[0], rank, inputs[rank]);
  REQUIRE(cpu.run() == "");
  Outputs outputs(run.world->size());
  for (RankId rank = 0; rank < run.world->size(); ++rank)
    for (size_t place = 0; place < run.plan->outputs.size(); ++place)
      outputs[rank].push_back(cpu.output(place, rank));
  return outputs;
}

// Each rank has a program of its own, as each process has. `problems`: of any rank.
Outputs together(const std::string &text, const std::vector<Tensor> &inputs, CpuOptions options,
                 Mail &mail, std::vector<std::string> &problems) {
  const size_t size = inputs.size();
  Outputs outputs(size);
  problems.assign(size, "");
  std::vector<std::unique_ptr<Planned>> runs;
  for (size_t i = 0; i < size; ++i)
    runs.push_back(planned(text));
  std::vector<std::thread> threads;
  for (RankId rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank, options]() mutable {
      ThreadPeers peers(mail, rank);
      options.peers = &peers;
      Planned &run = *runs[rank];
      std::unique_ptr<Backend> backend = make_cpu_backend(options);
      auto tried = [&](llvm::Error error) {
        if (problems[rank].empty())
          problems[rank] = llvm::toString(std::move(error));
        else
          llvm::consumeError(std::move(error));
      };
      tried(backend->prepare(run.checked->mutable_program(), *run.plan, *run.world));
      tried(backend->write(run.plan->values[run.plan->params[0]].buffer, rank, inputs[rank]));
      tried(backend->run(run.plan->all(), kNoDeadline));
      for (PlannedId output : run.plan->outputs)
        tried(backend->read(run.plan->values[output].buffer, rank, outputs[rank].emplace_back()));
    });
  for (std::thread &thread : threads)
    thread.join();
  return outputs;
}

constexpr DType kTypes[] = {DType::F64,    DType::F32,  DType::BF16, DType::F16, DType::F8E4M3,
                            DType::F8E5M2, DType::Bool, DType::I8,   DType::I16, DType::I32,
                            DType::I64,    DType::U8,   DType::U16,  DType::U32, DType::U64,
                            DType::C64,    DType::C128};

} // namespace

TEST_CASE("messages carry the bits of a run without messages", "[peers]") {
  Random random(20);
  for (int sample = 0; sample < 600; ++sample) {
    const DType dtype = kTypes[random() % std::size(kTypes)];
    const std::string text = program(random, dtype);
    CAPTURE(sample, text);
    std::unique_ptr<Planned> run = planned(text);
    REQUIRE(run->problem == "");
    CpuOptions options;
    options.domain = one_of(
        random, {Domain::Declared, Domain::Declared, Domain::Declared, Domain::F64, Domain::Field});
    options.check_memory = random() % 2;
    std::vector<Tensor> inputs;
    const Buffer &input = run->plan->buffers[run->plan->values[run->plan->params[0]].buffer];
    for (RankId rank = 0; rank < run->world->size(); ++rank)
      inputs.push_back(any(random, dtype, input.on(rank), options.domain));
    Outputs want = alone(*run, inputs, options);
    Mail mail;
    std::vector<std::string> problems;
    Outputs got = together(text, inputs, options, mail, problems);
    for (RankId rank = 0; rank < inputs.size(); ++rank) {
      CAPTURE(rank);
      REQUIRE(problems[rank] == "");
      for (size_t place = 0; place < want[rank].size(); ++place)
        REQUIRE(same(got[rank][place], want[rank][place]));
    }
  }
}

TEST_CASE("messages are as long as their declared elements", "[peers]") {
  Random random(21);
  for (DType dtype : kTypes)
    for (Domain domain : {Domain::Declared, Domain::F64, Domain::Field}) {
      const ir::DTypeInfo &info = ir::info(dtype);
      const std::string text =
          fmt::format("trace {{ mode = local }}\nmesh m {{ tp = 2 }}\n"
                      "%x = input {}[64, 2] V {{ requires_grad = false }}\n"
                      "%y = broadcast %x {{ axis = tp, root = 1, src = V, dst = R }}\noutput %y\n",
                      info.word);
      CAPTURE(text, domain);
      std::vector<Tensor> inputs(2, any(random, dtype, {64, 2}, domain));
      Mail mail;
      std::vector<std::string> problems;
      together(text, inputs, {.domain = domain}, mail, problems);
      REQUIRE(problems == std::vector<std::string>(2));
      const bool is_real = info.form == ir::DTypeClass::Float;
      const bool is_complex = info.form == ir::DTypeClass::Complex;
      const uint64_t element = domain == Domain::Field               ? 8
                               : domain == Domain::F64 && is_complex ? 16
                               : domain == Domain::F64 && is_real    ? 8
                                                                     : info.bytes;
      CHECK(mail.bytes() == 2 * 128 * element); // to both, as a gather
    }
}

TEST_CASE("what is no number of its type is not sent", "[peers]") {
  const std::string text = "trace { mode = local }\nmesh m { tp = 2 }\n"
                           "%x = input f32[4] V\n"
                           "%y = all_gather %x { axis = tp, src = V, dst = R }\noutput %y\n";
  std::vector<Tensor> inputs(2, Tensor::make(DType::F32, {4}, Domain::Declared));
  for (Tensor &input : inputs)
    input.of<double>()[3] = 0.1; // of more digits than a float has
  Mail mail;
  std::vector<std::string> problems;
  together(text, inputs, {}, mail, problems);
  for (const std::string &problem : problems)
    CHECK(problem.find("a number that f32 does not have") != std::string::npos);
  CHECK(mail.bytes() == 0);
}

} // namespace spmd::runtime
