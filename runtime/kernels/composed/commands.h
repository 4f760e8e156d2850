// The commands of a device, and how it is put together: loops over strided arrays, merged where
// they can be.
#pragma once

#include "runtime/commands/command.h"
#include "runtime/commands/traced_number.h"
#include "runtime/kernels/positions.h"

#include <variant>

namespace spmd::runtime {

using Command = std::variant<SpmdMove, SpmdLoopNest, SpmdMatrices, SpmdSort, SpmdScatter>;

inline bool is_complex(ir::DType dtype) { return ir::info(dtype).form == ir::DTypeClass::Complex; }

// Of the real and the imaginary part of a complex number.
inline ir::DType part_of(ir::DType dtype) {
  return dtype == ir::DType::C64 ? ir::DType::F32 : ir::DType::F64;
}

// A tensor on a device. `first`: where it begins in the whole, which has extents `whole`; null: it
// is the whole.
struct DeviceArray {
  SpmdAddress data = 0;
  ir::DType dtype = ir::DType::Unknown;
  const Dims *dims = nullptr, *first = nullptr, *whole = nullptr;

  int64_t size() const { return count(*dims); }
  bool is_complex() const { return runtime::is_complex(dtype); }
};

inline uint32_t element_of(ir::DType dtype) { return static_cast<uint32_t>(dtype); }
inline SpmdAddress after(SpmdAddress data, ir::DType dtype, int64_t elements) {
  return data + static_cast<uint64_t>(elements * static_cast<int64_t>(ir::info(dtype).bytes));
}

// A loop nest that is being put together. Loops are added outermost first, all outer ones before
// the inner ones.
class LoopNestDraft {
public:
  struct Input {
    DeviceArray at;
    Strides strides; // per loop
    int64_t offset = 0;
    unsigned index = ~0u; // of the input that says where
    int64_t stride = 0, extent = 0, begin = 0;
  };
  Strides extents;
  unsigned inner = 0; // loops at the end that are combined
  std::vector<Input> inputs;
  DeviceArray out;
  Strides out_strides; // per outer loop
  int64_t out_offset = 0;
  SpmdCombiner combiner = kSpmdSum;
  bool adds = false;
  double factor = 1, divisor = 1;
  ScalarProgram program; // input k: of `inputs`

  // False: there are more loops or arrays than a loop nest has, or elements of the result are met
  // more than once.
  bool build(std::vector<Command> &commands);
};

// The product of so many inputs; of none: 1.
ScalarProgram product_program(unsigned inputs);
// Whether it begins where one of these does.
bool lies_at_any(const DeviceArray &tensor, llvm::ArrayRef<DeviceArray> of);
// Each element of `to` is that of `from`, times `factor`, over `divisor`; `from` of no element: its
// place. False as with `build`.
bool add_scaled(const DeviceArray &from, const DeviceArray &to, double factor, double divisor,
                std::vector<Command> &commands);
// Every element of `to` is the number.
void add_fill(const DeviceArray &to, double number, std::vector<Command> &commands);
// Elements from one dense array, or part of one, to another. False: too many loops.
struct BoxOf {
  llvm::ArrayRef<int64_t> extents, from_strides, to_strides;
  int64_t from = 0, to = 0;
};
// Of one dtype the bits, else the numbers. `adds`: to what is there. False as with `build`.
bool add_box(const DeviceArray &from, const DeviceArray &to, const BoxOf &box, bool adds,
             std::vector<Command> &commands);

} // namespace spmd::runtime
