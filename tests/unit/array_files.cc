// Arrays in files: what is written is read back bit by bit, and what is damaged is refused with a
// reason.
#include "runtime/inputs/npy.h"
#include "runtime/inputs/safetensors.h"
#include "runtime/tensor/element_bytes.h"

#include "tests/unit/catch.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

using namespace spmd;
using ir::DType;
using runtime::Complex;
using runtime::Domain;
using runtime::Tensor;

namespace {

std::string refusal(llvm::Error error) { return llvm::toString(std::move(error)); }
// What must be there.
template <class T> T must(llvm::Expected<T> read) {
  std::string problem = read ? "" : llvm::toString(read.takeError());
  REQUIRE(problem == "");
  return std::move(*read);
}
template <class T> std::string refusal_of(llvm::Expected<T> read) {
  return read ? "" : llvm::toString(read.takeError());
}

// Values that every float dtype rounds to itself or to something of its own.
Tensor sample(DType dtype, runtime::Dims dims) {
  Tensor tensor = Tensor::make(dtype, std::move(dims), Domain::Declared);
  if (tensor.is_complex()) {
    for (size_t i = 0; i < tensor.of<Complex>().size(); ++i)
      tensor.of<Complex>()[i] = {0.37 * double(i) - 1, 1.7 - double(i)};
  } else {
    for (size_t i = 0; i < tensor.of<double>().size(); ++i)
      tensor.of<double>()[i] = std::abs(7.3 * double(i) - 9);
  }
  runtime::round_cells(tensor, Domain::Declared);
  return tensor;
}

std::string npy(std::string_view header, std::string_view data = "", char version = 1) {
  std::string bytes = std::string("\x93NUMPY", 6) + version + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    bytes += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return bytes + std::string(header) + std::string(data);
}
std::string stored(std::string_view header, std::string_view data = "") {
  std::string bytes;
  for (int i = 0; i < 8; ++i)
    bytes += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return bytes + std::string(header) + std::string(data);
}

} // namespace

TEST_CASE("all patterns of 8 and 16 bits survive", "[files]") {
  for (DType dtype :
       {DType::F8E4M3, DType::F8E5M2, DType::BF16, DType::F16, DType::I8, DType::U16}) {
    bool wide = ir::info(dtype).bytes == 2;
    std::string bytes;
    for (unsigned i = 0; i < (wide ? 65536u : 256u); ++i) {
      bytes += static_cast<char>(i & 0xFF);
      if (wide)
        bytes += static_cast<char>(i >> 8);
    }
    Tensor tensor = Tensor::make(dtype, {wide ? 65536 : 256}, Domain::Declared);
    REQUIRE(refusal(runtime::unpack_elements(bytes, tensor)) == "");
    const std::vector<double> &cells = tensor.of<double>();
    for (size_t i = 0; i < cells.size(); ++i) // each is a number that rounding knows
      if (!std::isnan(cells[i]))
        REQUIRE(runtime::rounded(cells[i], dtype) == cells[i]);
    std::string again = runtime::pack_elements(tensor);
    REQUIRE(again.size() == bytes.size());
    size_t step = wide ? 2 : 1;
    for (size_t i = 0; i < cells.size(); ++i)
      if (!std::isnan(cells[i]))
        REQUIRE(again.substr(i * step, step) == bytes.substr(i * step, step));
  }
}

TEST_CASE("known bytes of small floats", "[files]") {
  auto value = [](DType dtype, std::string bytes) {
    Tensor tensor = Tensor::make(dtype, {}, Domain::Declared);
    REQUIRE(refusal(runtime::unpack_elements(bytes, tensor)) == "");
    return tensor.of<double>()[0];
  };
  CHECK(value(DType::BF16, std::string("\x80\x3f", 2)) == 1.0);
  CHECK(value(DType::F16, std::string("\x01\x00", 2)) == std::ldexp(1.0, -24));
  CHECK(value(DType::F16, std::string("\x00\x7c", 2)) == std::numeric_limits<double>::infinity());
  CHECK(value(DType::F8E4M3, "\x7e") == 448);
  CHECK(std::isnan(value(DType::F8E4M3, "\x7f")));
  CHECK(value(DType::F8E5M2, "\x7c") == std::numeric_limits<double>::infinity());
  CHECK(value(DType::F8E5M2, "\x7b") == 57344);
}

TEST_CASE("every dtype goes through both formats", "[files]") {
  for (const ir::DTypeInfo &info : ir::kDTypes) {
    if (info.dtype == DType::Unknown)
      continue;
    INFO(info.word);
    for (const runtime::Dims &dims : {runtime::Dims{}, {5}, {2, 3}, {2, 0, 3}}) {
      Tensor tensor = sample(info.dtype, dims);
      Tensor read = must(runtime::read_npy(runtime::print_npy(tensor)));
      CHECK(read.dims == tensor.dims);
      CHECK(bool(read.cells == tensor.cells));
      Tensor scalar = sample(info.dtype, {});
      auto bytes = runtime::print_safetensors({{"a.b", &tensor}, {"c", &scalar}});
      std::vector<runtime::StoredTensor> entries = must(runtime::read_safetensors(bytes));
      REQUIRE(entries.size() == 2);
      for (const runtime::StoredTensor &entry : entries)
        CHECK(bool(must(runtime::unpack(entry)) == (entry.name == "c" ? scalar : tensor)));
    }
  }
}

TEST_CASE("residues are written as whole numbers", "[files]") {
  Tensor tensor = Tensor::make(DType::F32, {2}, Domain::Field);
  tensor.of<runtime::Residue>() = {runtime::Residue(7), runtime::Residue(1) + runtime::Residue(2)};
  Tensor read = must(runtime::read_npy(runtime::print_npy(tensor)));
  CHECK(read.dtype == DType::U64);
  CHECK(read.of<double>() == std::vector<double>{7, 3});
}

TEST_CASE("NumPy's own headers", "[files]") {
  std::string one(4, '\0');
  auto reads = [&](std::string bytes) { return refusal_of(runtime::read_npy(bytes)); };
  CHECK(reads(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }   \n", one)) == "");
  CHECK(reads(npy("{\"shape\": (1,), 'descr': '=f4', 'fortran_order': False}\n", one, 2)) == "");
  CHECK(reads(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", one, 3)) == "");
  CHECK(reads(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", one)) == "");
}

TEST_CASE("what is no array of ours is refused with the reason", "[files]") {
  auto why = [](std::string header, std::string data = "") {
    return refusal_of(runtime::read_npy(npy(header, data)));
  };
  auto array = [&](std::string descr, std::string order, std::string shape, std::string data = "") {
    return why("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }",
               data);
  };
  CHECK(refusal_of(runtime::read_npy("PK\x03\x04")) ==
        "it is no .npy file: it does not begin with its magic word");
  CHECK(refusal_of(runtime::read_npy(std::string("\x93NUMPY\x01", 7))) == "it ends in its header");
  CHECK(refusal_of(runtime::read_npy(npy("{}", "", 9))) == "its version 9.0 is none that we read");
  CHECK(refusal_of(runtime::read_npy(npy("{}").substr(0, 11))) ==
        "its header of 2 bytes is longer than the file");
  CHECK(why("[]") == "its header is no dictionary");
  CHECK(why("{}") == "its header lacks `descr`");
  CHECK(why("{'descr': '<f4'") == "its header is damaged");
  CHECK(why("{'colour': 'red'}") == "its header has a key that is repeated or unknown");
  CHECK(array("'<f4'", "False", "(2, 2)", std::string(12, '\0')) ==
        "its shape [2, 2] and its elements of 4 bytes do not fit the 12 bytes of data");
  CHECK(array("'<f4'", "True", "(2, 2)", std::string(16, '\0')) ==
        "its elements are in Fortran order");
  CHECK(array("'>f4'", "False", "(1,)", std::string(4, '\0')) ==
        "its elements are big endian (`>f4`)");
  CHECK(array("'<f4'", "Perhaps", "(1,)") == "its `fortran_order` is neither True nor False");
  CHECK(array("'|O'", "False", "(1,)") == "its elements are `|O`, which is no type of ours");
  CHECK(array("[('a', '<f4')]", "False", "(1,)") == "its elements are records");
  CHECK(array("'<f4'", "False", "(-1,)") == "its `shape` is no tuple of extents");
  CHECK(array("'<f4'", "False", "(3)", std::string(12, '\0')) ==
        "its `shape` is no tuple of extents");
  CHECK(
      array("'<f4'", "False", "(9007199254740992, 9007199254740992)") ==
      "its shape [9007199254740992, 9007199254740992] and its elements of 4 bytes do not fit the 0 "
      "bytes of data");
  std::string large(16, '\0');
  large[15] = 0x70;
  CHECK(array("'<i8'", "False", "(2, 1)", large) == "the whole number at [1, 0] is beyond 2^53");
  CHECK(array("'<V2'", "False", "(1,)", "\x80\x3f") == "its elements are 2 bytes without a type");
}

TEST_CASE("opaque elements are what the reader says", "[files]") {
  std::string bytes = npy("{'descr': '<V2', 'fortran_order': False, 'shape': (1,), }", "\x80\x3f");
  Tensor read = must(runtime::read_npy(bytes, DType::BF16));
  CHECK(read.dtype == DType::BF16);
  CHECK(read.of<double>()[0] == 1.0);
}

TEST_CASE("a damaged .safetensors file is refused with the reason", "[files]") {
  auto why = [](std::string header, std::string data = "") {
    return refusal_of(runtime::read_safetensors(stored(header, data)));
  };
  auto entry = [&](std::string dtype, std::string shape, std::string offsets, std::string data) {
    return why(R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" +
                   offsets + "}}",
               data);
  };
  std::string four(4, '\0');
  CHECK(entry("\"F32\"", "[1]", "[0,4]", four) == "");
  CHECK(why(R"({"__metadata__":{"format":"pt"}})") == "");
  CHECK(refusal_of(runtime::read_safetensors("abc")) ==
        "it is no .safetensors file: it is shorter than 8 bytes");
  CHECK(refusal_of(runtime::read_safetensors(std::string(8, '\x7f'))) ==
        "its header would have 9187201950435737471 bytes, of which 100000000 are allowed");
  CHECK(refusal_of(runtime::read_safetensors(stored("{}").substr(0, 9))) ==
        "its header of 2 bytes is longer than the file");
  std::string damaged = "its header is no JSON object, or names something twice";
  CHECK(why("{") == damaged);
  CHECK(why("[]") == damaged);
  CHECK(why(R"({"a":{},"a":{}})") == damaged);
  CHECK(why(R"({"a":{"dtype":"F32","dtype":"F32"}})") == damaged);
  CHECK(why(R"({"a":3})") == "tensor `a`: it is no object");
  CHECK(why(R"({"a":{"dtype":"F32","shape":[]}})") == "tensor `a`: it lacks `data_offsets`");
  CHECK(entry("\"F31\"", "[1]", "[0,4]", four) ==
        "tensor `a`: its elements are `F31`, which is no type of ours");
  CHECK(entry("3", "[1]", "[0,4]", four) == "tensor `a`: its `dtype` is no word");
  CHECK(entry("\"F32\"", "[-1]", "[0,4]", four) == "tensor `a`: its `shape` is no list of extents");
  CHECK(entry("\"F32\"", "[1.5]", "[0,4]", four) ==
        "tensor `a`: its `shape` is no list of extents");
  CHECK(entry("\"F32\"", "[1]", "[4,0]", four) ==
        "tensor `a`: its `data_offsets` are no two offsets");
  CHECK(entry("\"F32\"", "[2]", "[0,8]", four) == "tensor `a`: its data end at byte 8 of 4");
  CHECK(entry("\"F32\"", "[2]", "[0,4]", four) ==
        "tensor `a`: f32[2] does not take the 4 bytes between its offsets");
  CHECK(entry("\"F32\"", "[1]", "[0,4]", four + "x") == "1 bytes at its end belong to no tensor");
  CHECK(why(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
            R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            "xyz") == "the data of `b` begin at byte 1, those before end at 2");
  CHECK(why(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy") ==
        "the data of `a` begin at byte 1, those before end at 0");
}

TEST_CASE("damaged bytes never get through unseen or read outside of the file", "[files]") {
  Tensor a = sample(DType::F32, {3, 2}), b = sample(DType::BF16, {4});
  std::string array = runtime::print_npy(a);
  std::string tensors = runtime::print_safetensors({{"a", &a}, {"b", &b}});
  std::mt19937_64 random(7);
  auto read_both = [](const std::string &bytes) {
    // A copy of exact size, so that a sanitizer sees what is read beyond it.
    std::vector<char> exact(bytes.begin(), bytes.end());
    llvm::StringRef ref(exact.data(), exact.size());
    if (llvm::Expected<Tensor> read = runtime::read_npy(ref))
      CHECK(read->size() == static_cast<int64_t>(read->of<double>().size()));
    else
      CHECK(!refusal(read.takeError()).empty());
    if (auto entries = runtime::read_safetensors(ref)) {
      for (const runtime::StoredTensor &entry : *entries)
        llvm::consumeError(runtime::unpack(entry).takeError());
    } else {
      CHECK(!refusal(entries.takeError()).empty());
    }
  };
  for (const std::string &whole : {array, tensors}) {
    for (size_t length = 0; length < whole.size(); ++length)
      read_both(whole.substr(0, length));
    for (int round = 0; round < 4000; ++round) {
      std::string bytes = whole;
      for (int times = 1 + static_cast<int>(random() % 4); times > 0; --times) {
        size_t at = random() % std::min<size_t>(bytes.size(), 160);
        switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 4);
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(random()));
        }
      }
      read_both(bytes);
    }
  }
}
