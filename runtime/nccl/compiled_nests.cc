// The compiler is opened when the first large loop nest comes: a program without one needs none.
// Where there is none, or it fails, nest.cu carries out what it carries out for small ones, and a
// line on stderr says so once.
#include "runtime/nccl/compiled_nests.h"

#include "runtime/commands/scalar.h"
#include "runtime/nccl/nest_source.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <array>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// The text of a header, as the compiler of the kernels is given it. The assembler looks for it in
// the folder of the sources (-Wa,-I).
// NOLINTBEGIN(bugprone-macro-parentheses): literals side by side are one
#define SPMD_TEXT(name, path)                                                                      \
  asm(".section .rodata\n"                                                                         \
      ".global " #name "\n" #name ":\n.incbin \"" path "\"\n.byte 0\n"                             \
      ".previous\n");                                                                              \
  extern "C" __attribute__((visibility("hidden"))) const char name[];
// NOLINTEND(bugprone-macro-parentheses)
SPMD_TEXT(spmd_text_of_scalar, "runtime/commands/scalar.h")
SPMD_TEXT(spmd_text_of_command, "runtime/commands/command.h")
SPMD_TEXT(spmd_text_of_arguments, "runtime/nccl/nest_arguments.h")
SPMD_TEXT(spmd_text_of_cells, "runtime/nccl/cells.h")

namespace spmd::nccl {
namespace {

// Positions of all loops from which on a kernel of its own is worth the tens of milliseconds that
// it takes to compile.
constexpr int64_t kLarge = int64_t(1) << 20;

// What the standard headers have that those headers use, and the compiler has not by itself.
constexpr const char *kMath = R"(#pragma once
#define NAN __int_as_float(0x7fc00000)
#define INFINITY __int_as_float(0x7f800000)
)";
constexpr const char *kIntegers = R"(#pragma once
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;
#define UINT32_MAX 0xffffffffu
)";

struct Header {
  const char *name, *text;
};
constexpr std::array kHeaders = {Header{"runtime/nccl/cells.h", spmd_text_of_cells},
                                 Header{"runtime/nccl/nest_arguments.h", spmd_text_of_arguments},
                                 Header{"runtime/commands/scalar.h", spmd_text_of_scalar},
                                 Header{"runtime/commands/command.h", spmd_text_of_command},
                                 Header{"cmath", kMath},
                                 Header{"cstring", ""},
                                 Header{"cstdint", kIntegers}};

// Functions of NVRTC, in the library that the toolkit or a package of it brings.
struct Library {
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetCUBINSize) size = nullptr;
  decltype(&nvrtcGetCUBIN) code = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;

  // What is missing, or nothing.
  std::string open() {
    const std::string name = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
    void *opened = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened)
      return ::dlerror();
    auto find = [opened](auto &function, const char *symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(opened, symbol));
      return function != nullptr;
    };
    const bool found = find(create, "nvrtcCreateProgram") && find(compile, "nvrtcCompileProgram") &&
                       find(size, "nvrtcGetCUBINSize") && find(code, "nvrtcGetCUBIN") &&
                       find(log_size, "nvrtcGetProgramLogSize") &&
                       find(log, "nvrtcGetProgramLog") && find(destroy, "nvrtcDestroyProgram");
    return found ? "" : name + " lacks a function";
  }
};

struct Kernel {
  cudaKernel_t kernel = nullptr; // none: it could not be compiled
  int64_t blocks = 0, parts = 1;
};

class Compiler {
public:
  Compiler() {
    std::string missing = library_.open();
    int device = 0, major = 0, minor = 0;
    if (missing.empty() &&
        (cudaGetDevice(&device) != cudaSuccess ||
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess))
      missing = "the compute capability of the device";
    architecture_ = "--gpu-architecture=sm_" + std::to_string(major) + std::to_string(minor);
    usable_ = missing.empty();
    if (!usable_)
      std::fprintf(stderr,
                   "spmdrun: large loops run slowly, there is no compiler for them: %s. Next: put "
                   "the folder of libnvrtc on LD_LIBRARY_PATH\n",
                   missing.c_str());
  }

  const Kernel &find(const SpmdLoopNest &nest, int64_t scratch) {
    auto [at, fresh] = kernels_.try_emplace(nest_key(nest));
    if (fresh && usable_)
      make(nest_source(nest, scratch), at->second);
    return at->second;
  }

private:
  void make(const NestSource &source, Kernel &kernel) {
    std::vector<char> code;
    std::string wrong = compile(source.text, code);
    cudaLibrary_t library = nullptr;
    if (wrong.empty()) {
      cudaError_t error =
          cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
      error = error ? error : cudaLibraryGetKernel(&kernel.kernel, library, "nest");
      if (error != cudaSuccess) {
        wrong = cudaGetErrorString(error);
        kernel.kernel = nullptr;
        cudaGetLastError();
      }
    }
    kernel.blocks = source.blocks;
    kernel.parts = source.parts;
    if (!wrong.empty() && !std::exchange(reported_, true))
      std::fprintf(stderr, "spmdrun: a loop runs slowly, its kernel cannot be compiled: %s\n",
                   wrong.c_str());
  }

  std::string compile(const std::string &text, std::vector<char> &code) {
    std::array<const char *, kHeaders.size()> names{}, texts{};
    for (size_t i = 0; i < kHeaders.size(); ++i) {
      names[i] = kHeaders[i].name;
      texts[i] = kHeaders[i].text;
    }
    nvrtcProgram program = nullptr;
    if (library_.create(&program, text.c_str(), "nest.cu", static_cast<int>(names.size()),
                        texts.data(), names.data()) != NVRTC_SUCCESS)
      return "nvrtcCreateProgram";
    // No product and sum become one: the numbers are those of a processor. The headers declare
    // functions of the host, too.
    const std::array<const char *, 4> options = {architecture_.c_str(), "--fmad=false",
                                                 "--std=c++17",
                                                 "--device-as-default-execution-space"};
    std::string wrong;
    size_t size = 0;
    if (library_.compile(program, static_cast<int>(options.size()), options.data()) !=
        NVRTC_SUCCESS) {
      library_.log_size(program, &size);
      std::vector<char> log(size + 1);
      library_.log(program, log.data());
      wrong = log.data();
    } else if (library_.size(program, &size) != NVRTC_SUCCESS || size == 0) {
      wrong = "nvrtcGetCUBINSize";
    } else {
      code.resize(size);
      if (library_.code(program, code.data()) != NVRTC_SUCCESS)
        wrong = "nvrtcGetCUBIN";
    }
    library_.destroy(&program);
    return wrong;
  }

  Library library_;
  bool usable_ = false, reported_ = false;
  std::string architecture_;
  std::unordered_map<std::string, Kernel> kernels_;
};

} // namespace

cudaError_t queue_compiled(const SpmdLoopNest &joined, double *partial, int64_t partial_numbers,
                           cudaStream_t stream, CompiledNest &made) {
  if (device::iterations(joined.extents, 0, joined.loops) < kLarge || !has_nest_source(joined))
    return cudaSuccess;
  static Compiler compiler; // of the one device of the process
  const Kernel &kernel = compiler.find(joined, partial_numbers);
  if (!kernel.kernel)
    return cudaSuccess;
  NestArguments arguments = arguments_of(joined, partial);
  void *parameters[] = {&arguments};
  made = {true, kernel.parts};
  return cudaLaunchKernel(reinterpret_cast<const void *>(kernel.kernel),
                          dim3(static_cast<unsigned>(kernel.blocks)), dim3(kNestThreads),
                          parameters, 0, stream);
}

} // namespace spmd::nccl
