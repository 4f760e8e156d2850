// The folder is checked before anything in it is read or written: what others can write to is
// refused.
#include "runtime/launch/token_file.h"

#include "runtime/launch/socket.h"

#include "ir/support/error.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace spmd::runtime {
namespace {

constexpr const char *kNext = "set SPMD_STORE_TOKEN to a secret, the same on all ranks";

std::string folder() { return fmt::format("/tmp/spmdrun-{}", ::geteuid()); }

// Hosts that share their files, as containers may, have loopbacks of their own.
std::string name_of(uint16_t port) {
  struct stat network {};
  ::stat("/proc/self/ns/net", &network);
  return fmt::format("store-{}-{}", network.st_ino, port);
}

// Anything that closes when it goes.
class File {
public:
  explicit File(int file) : file_(file) {}
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  ~File() {
    if (file_ >= 0)
      ::close(file_);
  }
  int get() const { return file_; }

private:
  int file_;
};

bool is_own(int file, mode_t form) {
  struct stat found {};
  return ::fstat(file, &found) == 0 && (found.st_mode & S_IFMT) == form &&
         found.st_uid == ::geteuid() && (found.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

llvm::Error system_error(const std::string &path) {
  return make_error(fmt::format("{}: {}: {}", path, std::strerror(errno), kNext));
}
llvm::Error not_own(const std::string &path) {
  return make_error(fmt::format(
      "{} belongs to another user, or others may use it: remove it, or {}", path, kNext));
}

int open_folder(const std::string &path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

} // namespace

llvm::Expected<TokenFile> TokenFile::write(uint16_t port, llvm::StringRef token) {
  const std::string path = folder(), name = name_of(port), whole = path + "/" + name;
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return system_error(path);
  File in(open_folder(path));
  if (in.get() < 0 && errno != ENOTDIR && errno != ELOOP)
    return system_error(path);
  if (in.get() < 0 || !is_own(in.get(), S_IFDIR))
    return not_own(path);
  // One that a run left behind which was killed.
  ::unlinkat(in.get(), name.c_str(), 0);
  File file(::openat(in.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                     S_IRUSR | S_IWUSR));
  if (file.get() < 0)
    return system_error(whole);
  TokenFile made(whole);
  if (::write(file.get(), token.data(), token.size()) != static_cast<ssize_t>(token.size()))
    return system_error(whole);
  return made;
}

TokenFile::~TokenFile() {
  if (!path_.empty())
    ::unlink(path_.c_str());
}

llvm::Expected<std::string> read_token(uint16_t port) {
  const std::string path = folder(), name = name_of(port);
  File in(open_folder(path));
  if (in.get() < 0 && errno == ENOENT)
    return "";
  if (in.get() < 0 || !is_own(in.get(), S_IFDIR))
    return not_own(path);
  File file(::openat(in.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT)
    return "";
  if (file.get() < 0 || !is_own(file.get(), S_IFREG))
    return not_own(path + "/" + name);
  std::array<char, 128> bytes{};
  const ssize_t size = ::read(file.get(), bytes.data(), bytes.size());
  return std::string(bytes.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
}

} // namespace spmd::runtime
