// Reads and writes .npy. The header is the text of a Python dictionary of three keys; nothing else
// of Python is understood.
#include "runtime/inputs/npy.h"

#include "ir/mesh/axis.h"
#include "ir/support/error.h"
#include "ir/support/strings.h"
#include "runtime/tensor/element_bytes.h"

#include <fmt/format.h>

#include <optional>

namespace spmd::runtime {

using ir::DType;
using llvm::StringRef;

namespace {

constexpr StringRef kMagic("\x93NUMPY", 6);

struct Word {
  StringRef text; // kind and bytes
  DType dtype;
};
constexpr Word kWords[] = {
    {"b1", DType::Bool}, {"i1", DType::I8},    {"i2", DType::I16}, {"i4", DType::I32},
    {"i8", DType::I64},  {"u1", DType::U8},    {"u2", DType::U16}, {"u4", DType::U32},
    {"u8", DType::U64},  {"f2", DType::F16},   {"f4", DType::F32}, {"f8", DType::F64},
    {"c8", DType::C64},  {"c16", DType::C128},
};

// What the dictionary says; none where a key is absent.
struct Header {
  std::optional<StringRef> descr;
  std::optional<bool> fortran;
  std::optional<Dims> shape;
};

class HeaderParser {
public:
  explicit HeaderParser(StringRef text) : text_(text) {}

  // Empty, or what is wrong.
  std::string run(Header &header) {
    if (!eat('{'))
      return "its header is no dictionary";
    while (!eat('}')) {
      std::string problem = entry(header);
      if (!problem.empty())
        return problem;
      if (!eat(',') && peek() != '}')
        return "its header is damaged";
    }
    skip();
    if (!text_.empty())
      return "its header goes on after the dictionary";
    for (auto [name, there] : {std::pair("descr", header.descr.has_value()),
                               std::pair("fortran_order", header.fortran.has_value()),
                               std::pair("shape", header.shape.has_value())})
      if (!there)
        return fmt::format("its header lacks `{}`", name);
    return "";
  }

private:
  std::string entry(Header &header) {
    std::optional<StringRef> key = word();
    if (!key || !eat(':'))
      return "its header is damaged";
    if (*key == "descr" && !header.descr) {
      if (peek() == '[')
        return "its elements are records";
      header.descr = word();
      return header.descr ? "" : "its `descr` is no word";
    }
    if (*key == "fortran_order" && !header.fortran) {
      skip();
      if (text_.consume_front("True"))
        header.fortran = true;
      else if (text_.consume_front("False"))
        header.fortran = false;
      return header.fortran ? "" : "its `fortran_order` is neither True nor False";
    }
    if (*key == "shape" && !header.shape)
      return shape(header.shape.emplace()) ? "" : "its `shape` is no tuple of extents";
    return "its header has a key that is repeated or unknown";
  }

  bool shape(Dims &dims) {
    if (!eat('('))
      return false;
    while (!eat(')')) {
      uint64_t extent = 0;
      skip();
      if (text_.consumeInteger(10, extent) || extent > uint64_t(1) << 53 ||
          dims.size() == ir::kMaxDims)
        return false;
      dims.push_back(static_cast<int64_t>(extent));
      if (!eat(',') && (peek() != ')' || dims.size() == 1)) // `(3)` is a number
        return false;
    }
    return true;
  }
  std::optional<StringRef> word() {
    char quote = peek();
    if (quote != '\'' && quote != '"')
      return std::nullopt;
    size_t end = text_.find(quote, 1);
    if (end == StringRef::npos)
      return std::nullopt;
    StringRef found = text_.slice(1, end);
    text_ = text_.drop_front(end + 1);
    return found;
  }
  void skip() { text_ = text_.ltrim(" \n"); }
  char peek() {
    skip();
    return text_.empty() ? '\0' : text_.front();
  }
  bool eat(char c) {
    if (peek() != c)
      return false;
    text_ = text_.drop_front();
    return true;
  }

  StringRef text_;
};

// Empty, or why the elements are none of ours.
std::string set_dtype(StringRef descr, NpyArray &array) {
  StringRef order = descr.take_front(1), kind = descr.drop_front(order.size());
  if (order == ">" && kind.drop_front(1) != "1")
    return fmt::format("its elements are big endian (`{}`)", descr.str());
  for (const Word &word : kWords) {
    if (kind != word.text)
      continue;
    array.dtype = word.dtype;
    array.element_bytes = ir::info(word.dtype).bytes;
  }
  if (kind == "V1" || kind == "V2")
    array.element_bytes = kind == "V1" ? 1 : 2;
  bool known_order = order == "<" || order == "|" || order == "=" || order == ">";
  if (!known_order || array.element_bytes == 0)
    return fmt::format("its elements are `{}`, which is no type of ours", descr.str());
  return "";
}

// The text of the header, without what comes before it; `rest` is what follows. Empty, or what is
// wrong.
std::string split_header(StringRef bytes, StringRef &header, StringRef &rest) {
  if (!ir::starts_with(bytes, kMagic))
    return "it is no .npy file: it does not begin with its magic word";
  bytes = bytes.drop_front(kMagic.size());
  if (bytes.size() < 2)
    return "it ends in its header";
  unsigned version = static_cast<unsigned char>(bytes[0]);
  if (version < 1 || version > 3 || bytes[1] != 0)
    return fmt::format("its version {}.{} is none that we read", version,
                       static_cast<unsigned char>(bytes[1]));
  bytes = bytes.drop_front(2);
  size_t width = version == 1 ? 2 : 4, length = 0;
  if (bytes.size() < width)
    return "it ends in its header";
  for (size_t i = width; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(bytes[i]);
  bytes = bytes.drop_front(width);
  if (length > bytes.size())
    return fmt::format("its header of {} bytes is longer than the file", length);
  header = bytes.take_front(length);
  rest = bytes.drop_front(length);
  return "";
}

std::string read_header(StringRef bytes, NpyArray &array) {
  StringRef text;
  if (std::string problem = split_header(bytes, text, array.data); !problem.empty())
    return problem;
  Header header;
  if (std::string problem = HeaderParser(text).run(header); !problem.empty())
    return problem;
  if (std::string problem = set_dtype(*header.descr, array); !problem.empty())
    return problem;
  array.dims = std::move(*header.shape);
  // Of one dimension, or with none, both orders are one.
  if (*header.fortran && array.dims.size() > 1)
    return "its elements are in Fortran order";
  DType width = array.dtype != DType::Unknown ? array.dtype
                : array.element_bytes == 1    ? DType::U8
                                              : DType::U16;
  std::optional<uint64_t> expected = bytes_of(array.dims, width);
  if (!expected || *expected != array.data.size())
    return fmt::format(
        "its shape [{}] and its elements of {} bytes do not fit the {} bytes of data",
        fmt::join(array.dims, ", "), array.element_bytes, array.data.size());
  return "";
}

// The element type as the format writes it.
DType written_dtype(const Tensor &tensor) {
  if (tensor.is_modular())
    return DType::U64;
  for (const Word &word : kWords)
    if (word.dtype == tensor.dtype)
      return tensor.dtype;
  return DType::F32;
}
std::string descr_of(DType dtype) {
  for (const Word &word : kWords)
    if (word.dtype == dtype)
      return fmt::format("{}{}", ir::info(dtype).bytes == 1 ? '|' : '<', word.text.str());
  return "";
}

} // namespace

llvm::Expected<NpyArray> read_npy_header(StringRef bytes) {
  NpyArray array;
  if (std::string problem = read_header(bytes, array); !problem.empty())
    return make_error(problem);
  return array;
}

llvm::Expected<Tensor> read_npy(StringRef bytes, DType opaque) {
  llvm::Expected<NpyArray> array = read_npy_header(bytes);
  if (!array)
    return array.takeError();
  if (array->dtype == DType::Unknown) {
    if (ir::info(opaque).bytes != array->element_bytes)
      return make_error(
          fmt::format("its elements are {} bytes without a type", array->element_bytes));
    array->dtype = opaque;
  }
  Tensor tensor = Tensor::make(array->dtype, array->dims, Domain::Declared);
  if (llvm::Error error = unpack_elements(array->data, tensor))
    return error;
  return tensor;
}

std::string print_npy(const Tensor &tensor) {
  DType dtype = written_dtype(tensor);
  std::string shape;
  for (int64_t dim : tensor.dims)
    shape += fmt::format("{}{}", shape.empty() ? "" : ", ", dim);
  if (tensor.dims.size() == 1)
    shape += ',';
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   descr_of(dtype), shape);
  // Data begin at a multiple of 64.
  size_t before = kMagic.size() + 4;
  header.append((64 - (before + header.size() + 1) % 64) % 64, ' ');
  header += '\n';
  std::string bytes = kMagic.str();
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  if (dtype == tensor.dtype || tensor.is_modular())
    return bytes + pack_elements(tensor);
  Tensor wide = tensor;
  wide.dtype = dtype;
  return bytes + pack_elements(wide);
}

} // namespace spmd::runtime
