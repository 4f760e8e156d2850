// A mapped file is not copied, but it may become shorter while it is read: then the system sends
// SIGBUS, and the handler puts an empty page where the lost one was. Nothing but the pages that
// were mapped here is treated so.
#include "ir/input/read_file.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace spmd::ir {
namespace {

constexpr uint64_t kSmall = uint64_t(1) << 16; // read, not mapped
constexpr size_t kBlock = size_t(1) << 20;

// A mapping. Entries are reused and never freed, since a handler may read them at any time.
struct Mapping {
  std::atomic<char *> begin = nullptr; // null: free
  size_t size = 0;
  Mapping *next = nullptr;
};
std::atomic<Mapping *> mappings = nullptr;
std::atomic<bool> was_cut = false;

Mapping &entry_for(char *begin, size_t size) {
  for (Mapping *each = mappings; each; each = each->next)
    if (!each->begin) {
      each->size = size;
      each->begin = begin;
      return *each;
    }
  auto *made = new Mapping;
  made->size = size;
  made->begin = begin;
  made->next = mappings;
  mappings = made;
  return *made;
}

class MappedFile : public llvm::MemoryBuffer {
public:
  MappedFile(char *begin, size_t size) : entry_(entry_for(begin, size)) {
    init(begin, begin + size, /*RequiresNullTerminator=*/false);
  }
  ~MappedFile() override {
    char *begin = entry_.begin.exchange(nullptr);
    ::munmap(begin, getBufferSize());
  }
  BufferKind getBufferKind() const override { return MemoryBuffer_MMap; }

private:
  Mapping &entry_;
};

class ReadFile : public llvm::MemoryBuffer {
public:
  explicit ReadFile(std::string bytes) : bytes_(std::move(bytes)) {
    init(bytes_.data(), bytes_.data() + bytes_.size(), /*RequiresNullTerminator=*/false);
  }
  BufferKind getBufferKind() const override { return MemoryBuffer_Malloc; }

private:
  std::string bytes_;
};

void on_lost_page(int, siginfo_t *info, void *) {
  auto *at = static_cast<char *>(info->si_addr);
  for (Mapping *each = mappings; each; each = each->next) {
    char *begin = each->begin;
    if (!begin || at < begin || at >= begin + each->size)
      continue;
    auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    char *first = at - static_cast<size_t>(at - begin) % page;
    void *made = ::mmap(first, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (made == MAP_FAILED)
      break;
    was_cut = true;
    return;
  }
  std::signal(SIGBUS, SIG_DFL); // the access is done again
}

struct OpenedFile {
  int number = -1;
  bool owned = false;
  ~OpenedFile() {
    if (owned && number >= 0)
      ::close(number);
  }
};

std::string sentence_of(int error) {
  return describe_system_error({error, std::generic_category()});
}

std::string too_large(uint64_t most) {
  return fmt::format("there are more than {} bytes (--max-input)", most);
}

// Blocks are joined one by one, so that no more than one is held twice.
std::unique_ptr<llvm::MemoryBuffer> read_to_end(int file, std::string &problem, uint64_t most) {
  std::vector<std::unique_ptr<char[]>> blocks;
  uint64_t total = 0;
  size_t used = kBlock;
  while (true) {
    if (used == kBlock) {
      blocks.emplace_back(new char[kBlock]);
      used = 0;
    }
    ssize_t count = ::read(file, blocks.back().get() + used, kBlock - used);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return problem = sentence_of(errno), nullptr;
    if (count == 0)
      break;
    used += static_cast<size_t>(count);
    total += static_cast<uint64_t>(count);
    if (total > most)
      return problem = too_large(most), nullptr;
  }
  std::string bytes;
  bytes.reserve(total);
  for (auto &block : blocks) {
    bytes.append(block.get(), std::min<uint64_t>(kBlock, total - bytes.size()));
    block.reset();
  }
  return std::make_unique<ReadFile>(std::move(bytes));
}

} // namespace

std::string describe_system_error(std::error_code error) {
  std::string text = error.message();
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z' &&
      !(text.size() > 1 && text[1] >= 'A' && text[1] <= 'Z'))
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

std::unique_ptr<llvm::MemoryBuffer> read_file(const std::string &path, std::string &problem,
                                              uint64_t most) {
  OpenedFile file{STDIN_FILENO};
  if (path.find('\0') != std::string::npos)
    return problem = sentence_of(ENOENT), nullptr;
  if (path != "-") {
    file.owned = true;
    do
      file.number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    while (file.number < 0 && errno == EINTR);
  }
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0)
    return problem = sentence_of(errno), nullptr;
  if (S_ISDIR(status.st_mode))
    return problem = sentence_of(EISDIR), nullptr;
  auto size = static_cast<uint64_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || !file.owned || size < kSmall)
    return read_to_end(file.number, problem, most);
  if (size > most)
    return problem = too_large(most), nullptr;
  void *begin = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (begin == MAP_FAILED)
    return read_to_end(file.number, problem, most);
  return std::make_unique<MappedFile>(static_cast<char *>(begin), size);
}

void guard_mapped_files() {
  struct sigaction action {};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

bool mapped_file_was_truncated() { return was_cut; }

} // namespace spmd::ir
