// Decompression in blocks, so that the limit holds before memory is taken.
#include "ir/input/compression.h"

#include "ir/support/strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>
#include <zlib.h>
#include <zstd.h>

namespace spmd::ir {

namespace {

constexpr uint64_t kMaxRatio = 200, kAllowance = uint64_t(64) << 20;
constexpr size_t kBlock = size_t(1) << 18;
constexpr int kGzipWindow = 15 + 16; // the largest window, and a gzip header
constexpr int kZstdLevel = 9;

// What was made, block by block: a string that grows would be held twice.
struct Sink {
  Unpacked &result;
  uint64_t packed, most; // bytes: compressed; allowed
  std::vector<std::unique_ptr<char[]>> blocks = {};
  uint64_t total = 0;

  // Room for more, to be taken as far as it was filled.
  char *room() {
    if (total == blocks.size() * kBlock)
      blocks.emplace_back(new char[kBlock]);
    return blocks.back().get() + total % kBlock;
  }
  size_t room_size() const { return kBlock - total % kBlock; } // of room()
  // False, and an error, beyond the limit.
  bool take(size_t count, uint64_t offset) {
    uint64_t by_ratio = packed * kMaxRatio + kAllowance;
    total += count;
    if (total <= std::min(by_ratio, most))
      return true;
    blocks.clear();
    if (by_ratio <= most)
      fail("trace-limit", offset,
           fmt::format("the compressed bytes hold more than {} bytes, {} times their size plus "
                       "64 MiB",
                       by_ratio, kMaxRatio));
    else
      fail("trace-limit", offset,
           fmt::format("the compressed bytes hold more than {} bytes (--max-input)", most));
    return false;
  }
  void join() {
    if (blocks.empty())
      return;
    result.bytes.reserve(total);
    for (auto &block : blocks) {
      result.bytes.append(block.get(), std::min<uint64_t>(kBlock, total - result.bytes.size()));
      block.reset();
    }
  }
  void fail(std::string_view name, uint64_t offset, std::string message) {
    result.errors.push_back(
        {.name = name, .message = std::move(message), .offset = offset, .path = {}});
  }
};

// Gives zlib more input when it has none; its counts have 32 bits.
void feed(z_stream &stream, llvm::StringRef bytes, size_t &fed) {
  if (stream.avail_in != 0 || fed == bytes.size())
    return;
  size_t piece = std::min(bytes.size() - fed, size_t(1) << 30);
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(bytes.data() + fed));
  stream.avail_in = static_cast<uInt>(piece);
  fed += piece;
}

void inflate_all(llvm::StringRef bytes, Sink &out) {
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK)
    return out.fail("trace-limit", 0, "no memory is left to decompress");
  std::unique_ptr<z_stream, int (*)(z_stream *)> owner(&stream, ::inflateEnd);
  size_t fed = 0;
  int status = Z_OK;
  while (true) {
    feed(stream, bytes, fed);
    stream.next_out = reinterpret_cast<Bytef *>(out.room());
    const size_t room = out.room_size();
    stream.avail_out = static_cast<uInt>(room);
    status = inflate(&stream, Z_NO_FLUSH);
    uint64_t offset = fed - stream.avail_in;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      return out.fail("trace-encoding", offset,
                      fmt::format("the gzip data is damaged: {}",
                                  stream.msg ? stream.msg : "it cannot be decoded"));
    size_t made = room - stream.avail_out;
    if (!out.take(made, offset))
      return;
    bool more_input = stream.avail_in > 0 || fed < bytes.size();
    if (status == Z_STREAM_END) {
      if (!more_input)
        return;
      if (inflateReset(&stream) != Z_OK)
        return out.fail("trace-encoding", offset, "the gzip data is damaged");
    } else if (!more_input && made < room) {
      out.result.truncated = true;
      return;
    }
  }
}

void decompress_all(llvm::StringRef bytes, Sink &out) {
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx *)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (!context)
    return out.fail("trace-limit", 0, "no memory is left to decompress");
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  size_t left = 0;
  while (true) {
    const size_t room = out.room_size();
    ZSTD_outBuffer to{out.room(), room, 0};
    left = ZSTD_decompressStream(context.get(), &to, &in);
    if (ZSTD_isError(left))
      return out.fail("trace-encoding", in.pos,
                      fmt::format("the zstd data is damaged: {}", ZSTD_getErrorName(left)));
    if (!out.take(to.pos, in.pos))
      return;
    if (in.pos == in.size && to.pos < room) {
      out.result.truncated = left != 0;
      return;
    }
  }
}

std::optional<std::string> gzip(llvm::StringRef bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    return std::nullopt;
  std::unique_ptr<z_stream, int (*)(z_stream *)> owner(&stream, ::deflateEnd);
  std::string packed;
  char block[kBlock];
  size_t fed = 0;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    feed(stream, bytes, fed);
    stream.next_out = reinterpret_cast<Bytef *>(block);
    stream.avail_out = kBlock;
    status = deflate(&stream, fed == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    packed.append(block, kBlock - stream.avail_out);
  }
  return packed;
}

} // namespace

Compression compression_of(llvm::StringRef bytes) {
  if (ir::starts_with(bytes, "\x1F\x8B"))
    return Compression::Gzip;
  return ir::starts_with(bytes, "\x28\xB5\x2F\xFD") ? Compression::Zstd : Compression::None;
}

Compression compression_named(llvm::StringRef path) {
  if (ir::ends_with(path, ".gz"))
    return Compression::Gzip;
  return ir::ends_with(path, ".zst") ? Compression::Zstd : Compression::None;
}

Unpacked unpack(llvm::StringRef bytes, uint64_t most) {
  Unpacked result;
  Sink out{result, bytes.size(), most};
  switch (compression_of(bytes)) {
  case Compression::None:
    result.bytes = bytes.str();
    return result;
  case Compression::Gzip:
    inflate_all(bytes, out);
    break;
  case Compression::Zstd:
    decompress_all(bytes, out);
    break;
  }
  out.join();
  return result;
}

std::optional<std::string> pack(std::string bytes, Compression compression) {
  if (compression == Compression::None)
    return bytes;
  if (compression == Compression::Gzip)
    return gzip(bytes);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  size_t size = ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), kZstdLevel);
  if (ZSTD_isError(size))
    return std::nullopt;
  packed.resize(size);
  return packed;
}

} // namespace spmd::ir
