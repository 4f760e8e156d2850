// Opening a plug-in, memory of its device, and what is compared.
#include "tests/gpu/opened_device.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <limits>

namespace spmd::gpu_test {
namespace {

constexpr uint64_t kMostMemory = uint64_t(1) << 30;

bool near(double a, double b, double tolerance) {
  if (!(a == a) || !(b == b))
    return !(a == a) && !(b == b);
  // Functions of a device and of a host may differ in the last bits of the smallest numbers, too.
  const double least = tolerance > 0 ? 4 * std::numeric_limits<double>::denorm_min() : 0;
  return a == b || std::fabs(a - b) <= tolerance * std::fmax(std::fabs(a), std::fabs(b)) + least;
}

} // namespace

std::string OpenedDevice::open(const char *module, bool &refused) {
  refused = false;
  void *opened = ::dlopen(module, RTLD_NOW | RTLD_LOCAL);
  if (!opened)
    return std::string(::dlerror());
  auto *entry =
      reinterpret_cast<const SpmdDevicePlugin *(*)()>(::dlsym(opened, "spmd_device_plugin"));
  if (!entry)
    return std::string(module) + " has no symbol `spmd_device_plugin`";
  plugin_ = entry();
  if (plugin_->abi != kSpmdDeviceAbi || plugin_->bytes != sizeof(SpmdDevicePlugin))
    return "the plug-in speaks another version of the interface";
  const SpmdHost host{sizeof(SpmdHost), this, [](void *self) -> int {
                        return static_cast<OpenedDevice *>(self)->stopped_;
                      }};
  const SpmdRanks ranks{0, 1, 0, 1};
  if (SpmdStatus status = plugin_->open(&host, &ranks, &device_, &facts_); status.code != kSpmdOk) {
    refused = status.code == kSpmdRefused;
    return status.text;
  }
  memory_bytes_ = std::min(kMostMemory, facts_.free_bytes / 2);
  SpmdStatus status = plugin_->allocate(device_, memory_bytes_, &memory_);
  return status.code == kSpmdOk ? "" : status.text;
}

void OpenedDevice::close() {
  expect_fine(plugin_->close(device_, 1), "close");
  device_ = nullptr;
}

void OpenedDevice::expect(bool holds, const std::string &text) {
  if (!holds && failure_.empty())
    failure_ = text;
}
void OpenedDevice::expect_fine(const SpmdStatus &status, const char *call) {
  expect(status.code == kSpmdOk,
         std::string(call) + ": code " + std::to_string(status.code) + ": " + status.text);
}

Elements OpenedDevice::elements(uint32_t element, int64_t count) {
  Elements made;
  made.element = element;
  made.count = count;
  made.host.resize(made.bytes() + 2 * Elements::kMargin);
  for (size_t at = 0; at < made.host.size(); at += sizeof(uint64_t)) {
    const uint64_t bits = random();
    std::memcpy(made.host.data() + at, &bits, std::min(sizeof bits, made.host.size() - at));
  }
  made.device_begin = memory_ + used_;
  made.device = made.device_begin + Elements::kMargin;
  used_ += (made.host.size() + 511) / 512 * 512;
  expect(used_ <= memory_bytes_, "the case needs more memory than there is for it");
  return made;
}

void OpenedDevice::put(Elements &elements) {
  expect_fine(
      plugin_->put(device_, elements.device_begin, elements.host.data(), elements.host.size()),
      "put");
}

std::string OpenedDevice::difference(Elements &elements, double tolerance) {
  std::vector<char> got(elements.host.size());
  SpmdStatus status =
      plugin_->get(device_, got.data(), elements.device_begin, elements.host.size());
  if (status.code != kSpmdOk)
    return std::string("get: ") + status.text;
  constexpr uint64_t margin = Elements::kMargin;
  const uint64_t behind = margin + elements.bytes();
  if (std::memcmp(got.data(), elements.host.data(), margin) != 0 ||
      std::memcmp(got.data() + behind, elements.host.data() + behind, margin) != 0)
    return "something was written before the first or behind the last element";
  const uint64_t size = device::bytes_of(elements.element);
  const bool is_float = elements.element >= kSpmdF8E4M3 && elements.element <= kSpmdF64;
  const auto on_device = reinterpret_cast<SpmdAddress>(got.data() + margin);
  for (int64_t i = 0; i < elements.count; ++i) {
    const uint64_t at = margin + static_cast<uint64_t>(i) * size;
    if (std::memcmp(got.data() + at, elements.host.data() + at, size) == 0)
      continue;
    const double wanted = elements.at(i), found = device::load(on_device, elements.element, i);
    if (is_float && near(wanted, found, tolerance))
      continue;
    char text[160];
    std::snprintf(text, sizeof text, "place %lld is %.17g, expected %.17g",
                  static_cast<long long>(i), found, wanted);
    return text;
  }
  return "";
}

void OpenedDevice::run(const std::string &name, const std::function<void()> &test) {
  if (name.find(only) == std::string::npos && name != "connect" && name != "split" &&
      name != "finish")
    return;
  failure_.clear();
  used_ = 0;
  random.seed(std::hash<std::string>{}(name));
  test();
  if (plugin_ && device_ && failure_.empty() && !stopped_)
    expect_fine(plugin_->wait(device_), "wait");
  ++(failure_.empty() ? passed : failed);
  if (!failure_.empty())
    std::printf("%s: FAILED: %s\n", name.c_str(), failure_.c_str());
}

} // namespace spmd::gpu_test
