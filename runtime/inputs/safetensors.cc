// Reads and writes .safetensors. All that a header says is held against the bytes that are there
// before any memory is taken for elements.
#include "runtime/inputs/safetensors.h"

#include "runtime/tensor/element_bytes.h"

#include "ir/mesh/axis.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <optional>
#include <set>

namespace spmd::runtime {

using ir::DType;
using llvm::StringRef;

namespace {

using Json = nlohmann::json; // sorted: a table in order of its lines would be searched line by line

struct Word {
  std::string_view text;
  DType dtype;
};
constexpr Word kWords[] = {
    {"BOOL", DType::Bool},      {"I8", DType::I8},          {"I16", DType::I16},
    {"I32", DType::I32},        {"I64", DType::I64},        {"U8", DType::U8},
    {"U16", DType::U16},        {"U32", DType::U32},        {"U64", DType::U64},
    {"F8_E4M3", DType::F8E4M3}, {"F8_E5M2", DType::F8E5M2}, {"BF16", DType::BF16},
    {"F16", DType::F16},        {"F32", DType::F32},        {"F64", DType::F64},
    {"C64", DType::C64},        {"C128", DType::C128},
};

// Parses the header; none where it is no JSON object, or names a key of an object twice.
std::optional<Json> parse_header(StringRef text) {
  std::vector<std::set<std::string>> keys;
  bool repeated = false;
  auto note = [&](int, Json::parse_event_t event, Json &parsed) {
    if (event == Json::parse_event_t::object_start)
      keys.emplace_back();
    else if (event == Json::parse_event_t::object_end)
      keys.pop_back();
    else if (event == Json::parse_event_t::key)
      repeated |= !keys.back().insert(parsed.get_ref<const std::string &>()).second;
    return true;
  };
  Json header = Json::parse(text.begin(), text.end(), note, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object() || repeated)
    return std::nullopt;
  return header;
}

// A whole number from 0 on; none if it is something else.
std::optional<uint64_t> whole_number(const Json &json) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > uint64_t(1) << 53)
    return std::nullopt;
  return json.get<uint64_t>();
}

// Empty, or what is wrong with `shape`.
std::string read_shape(const Json &json, Dims &dims) {
  if (!json.is_array() || json.size() > ir::kMaxDims)
    return "its `shape` is no list of extents";
  for (const Json &each : json) {
    std::optional<uint64_t> extent = whole_number(each);
    if (!extent)
      return "its `shape` is no list of extents";
    dims.push_back(static_cast<int64_t>(*extent));
  }
  return "";
}

std::string read_dtype(const Json &json, DType &dtype) {
  if (!json.is_string())
    return "its `dtype` is no word";
  const auto &word = json.get_ref<const std::string &>();
  for (const Word &known : kWords)
    if (known.text == word)
      dtype = known.dtype;
  return dtype == DType::Unknown
             ? fmt::format("its elements are `{}`, which is no type of ours", word)
             : "";
}

// Empty, or what is wrong with one tensor of the header.
std::string read_entry(const Json &json, StringRef all, StoredTensor &stored) {
  if (!json.is_object())
    return "it is no object";
  for (const char *key : {"dtype", "shape", "data_offsets"})
    if (!json.contains(key))
      return fmt::format("it lacks `{}`", key);
  if (std::string problem = read_dtype(json["dtype"], stored.dtype); !problem.empty())
    return problem;
  if (std::string problem = read_shape(json["shape"], stored.dims); !problem.empty())
    return problem;
  const Json &offsets = json["data_offsets"];
  std::optional<uint64_t> first, last;
  if (offsets.is_array() && offsets.size() == 2) {
    first = whole_number(offsets[0]);
    last = whole_number(offsets[1]);
  }
  if (!first || !last || *first > *last)
    return "its `data_offsets` are no two offsets";
  if (*last > all.size())
    return fmt::format("its data end at byte {} of {}", *last, all.size());
  stored.data = all.slice(*first, *last);
  if (bytes_of(stored.dims, stored.dtype) != *last - *first)
    return fmt::format("{} does not take the {} bytes between its offsets",
                       print_shape(stored.dtype, stored.dims), *last - *first);
  return "";
}

// Empty, or where data overlap or leave a gap. Sorts by place.
std::string lay_out(std::vector<StoredTensor> &tensors, StringRef all) {
  llvm::stable_sort(tensors, [](const StoredTensor &a, const StoredTensor &b) {
    return std::pair(a.data.begin(), a.data.end()) < std::pair(b.data.begin(), b.data.end());
  });
  const char *at = all.begin();
  for (const StoredTensor &each : tensors) {
    if (each.data.begin() != at)
      return fmt::format("the data of `{}` begin at byte {}, those before end at {}", each.name,
                         each.data.begin() - all.begin(), at - all.begin());
    at = each.data.end();
  }
  return at == all.end() ? ""
                         : fmt::format("{} bytes at its end belong to no tensor", all.end() - at);
}

// Empty, or what is wrong.
std::string read_all(StringRef bytes, std::vector<StoredTensor> &tensors) {
  if (bytes.size() < 8)
    return "it is no .safetensors file: it is shorter than 8 bytes";
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(bytes[i]);
  if (length > kMaxTensorHeader)
    return fmt::format("its header would have {} bytes, of which {} are allowed", length,
                       kMaxTensorHeader);
  if (length > bytes.size() - 8)
    return fmt::format("its header of {} bytes is longer than the file", length);
  StringRef data = bytes.drop_front(8 + length);
  std::optional<Json> header = parse_header(bytes.substr(8, length));
  if (!header)
    return "its header is no JSON object, or names something twice";
  for (const auto &[name, entry] : header->items()) {
    if (name == "__metadata__")
      continue;
    StoredTensor &stored = tensors.emplace_back();
    stored.name = name;
    if (std::string problem = read_entry(entry, data, stored); !problem.empty())
      return fmt::format("tensor `{}`: {}", name, problem);
  }
  return lay_out(tensors, data);
}

} // namespace

llvm::Expected<std::vector<StoredTensor>> read_safetensors(StringRef bytes) {
  std::vector<StoredTensor> tensors;
  if (std::string problem = read_all(bytes, tensors); !problem.empty())
    return make_error(problem);
  return tensors;
}

llvm::Expected<Tensor> unpack(const StoredTensor &stored) {
  Tensor tensor = Tensor::make(stored.dtype, stored.dims, Domain::Declared);
  if (llvm::Error error = unpack_elements(stored.data, tensor))
    return error;
  return tensor;
}

std::string print_safetensors(llvm::ArrayRef<std::pair<std::string, const Tensor *>> tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto &[name, tensor] : tensors) {
    DType dtype = tensor->is_modular() ? DType::U64 : tensor->dtype;
    size_t first = data.size();
    data += pack_elements(*tensor);
    std::string word;
    for (const Word &known : kWords)
      if (known.dtype == dtype)
        word = known.text;
    header[name] = {{"dtype", word},
                    {"shape", std::vector<int64_t>(tensor->dims.begin(), tensor->dims.end())},
                    {"data_offsets", {first, data.size()}}};
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes;
  for (unsigned i = 0; i < 8; ++i)
    bytes += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return bytes + text + data;
}

} // namespace spmd::runtime
