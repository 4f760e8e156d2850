// A small document with every key of the JSON form, and how tests read it and what is made of it.
#pragma once

#include "ir/input/input.h"
#include "ir/support/check.h"

#include <algorithm>
#include <memory>
#include <string>

namespace spmd::ir {

// Every table, and every key of an op; each piece stands in it once.
inline constexpr std::string_view kSample = R"~({"format": "spmd-trace", "version": "1.0",
"producer": {"name": "hand", "frontend": "fx"}, "dialect": "spmd", "mode": "global", "phase": "step",
"requires": [], "missing": ["grads", "locs"], "world": 16, "rank": 3, "op_count": 6,
"symbols": {"s0": {"min": 4, "max": 64, "multiple_of": 4, "hint": 8}},
"meshes": [{"id": "m", "axes": [{"name": "dp", "size": 4, "stride": 4, "policy": "local", "role": "data"},
    {"name": "tp", "size": 4}, {"name": "all", "of": ["dp", "tp"]}]},
  {"id": "half", "axes": ["tp", {"name": "one", "layout": [[2, 4]]}], "offset": 8, "within": {"mesh": "m", "at": {"dp": 2}}}],
"groups": {"0": {"mesh": "m", "axes": ["tp"]}, "1": {"layout": [[2, 8]], "offset": 1}, "2": {"ranks": [0, 3, 5]}},
"files": ["a.py", {"path": "b.py", "sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}],
"locs": [{"file": 0, "line": 3, "col": 2, "end": [3, 9], "func": "main"}, {"file": 1, "line": 7, "caller": 0}],
"scopes": ["layers.0", "layers.1"],
"contexts": [{"mesh": "m"}, {"mesh": "m", "local": ["tp"], "check": false, "grad": false, "implicit": true}],
"rules": {"my.swiglu": "f(g[...]) * u[...] -> [...]", "my.gelu": {"like": "gelu"}},
"functions": {"@body": {"ctx": 1, "params": [{"id": "%i", "dtype": "f32", "grad": {"type": {"tp": "P"}}}],
    "ops": [{"op": "gelu", "in": ["%i"], "out": [{"id": "%o"}]}], "results": ["%o"]},
  "@opaque": {"params": [{"id": "%i"}], "out": [{"dtype": "f32", "shape": [8], "type": {"dp": "R"}}]}},
"params": [{"id": "%0", "role": "input", "dtype": "f32", "shape": [8, "s0"], "gshape": [8, "s0*4"], "type": {"dp": "R", "tp": "S(-1)"}, "loc": 0},
  {"id": "%w", "role": "param", "name": "mlp.w", "dtype": "f32", "shape": [4, 8], "type": {"*": "V"}, "spec": [["dp", "tp"], null],
   "scale": "1/dp", "requires_grad": true, "grad": {"type": {"dp": "S(0)", "tp": "P"}, "scale": "dp",
   "sync": [{"axis": "tp", "op": "avg"}], "hints": [{"axis": "tp", "text": "a flag"}], "step": {"type": {"dp": "S(0)", "tp": "R"}}}}],
"ops": [{"op": "matmul", "in": ["%0", "%w", 2, -1.5, true, null, {"str": "a\nb"}, {"sym": "s0/4"}, {"num": "inf"}, ["%0"]],
   "kw": {"bias": "%w", "alpha": 2}, "attrs": {"partial": ["dp", "tp"], "eps": 1e-5, "nest": {"a": [1, "x"]}, "src": ["P", "V"]},
   "out": [{"id": "%1", "mesh": "m", "alias_of": "%w", "grad_of": "%0", "requires_grad": false}, {"id": "%2"}],
   "mut": [1, 10], "phase": "bwd", "bwd_of": "%0", "ctx": 1, "loc": 1, "scope": 1, "ignore": ["unknown-op"],
   "expect": [{"error": "spec-mismatch", "axes": ["tp"]}, {"value": "%1", "type": {"tp": "P(max)"}}], "x_note": 1},
  {"op": "assert_type", "in": ["%1"], "attrs": {"type": {"dp": "R|I", "tp": "?"}, "dtype": "f32", "shape": [4], "scale": "2"}},
  {"op": "scale", "in": ["%1"], "attrs": {"by": "1/(dp*tp)"}, "out": [{"id": "%3"}]},
  {"op": "local_map", "in": ["%0"], "attrs": {"axis": "tp", "in_types": [{"type": {"tp": "V"}, "spec": [null, "tp"]}], "out_types": [null]},
   "regions": {"body": "@body"}, "out": [{"id": "%4", "dtype": "f32", "shape": [8]}]},
  {"op": "reinterpret_mesh", "in": ["%0"], "attrs": {"mesh": "half", "type": {"one": "V"}}},
  {"op": "to_local", "in": ["%0"], "attrs": {"grad": {"type": {"tp": "P"}}}}],
"outputs": [{"value": "%4", "role": "grad", "of": "%w", "name": "g", "type": {"dp": "V"}, "spec": ["dp"]}],
"suppress": [{"ignore": "no-spec", "scope": "layers.*", "loc": 1, "reason": "known", "until": "2030-01-31"}],
"x_user": {"any": [1, 2, "t"]}})~";

inline std::string replaced(std::string_view from, std::string_view to) {
  std::string text(kSample);
  size_t at = text.find(from);
  SPMD_CHECK(at != std::string::npos, "the sample does not hold the piece");
  return text.replace(at, from.size(), to);
}

inline std::string described(const ReadResult &result) {
  std::string text;
  for (const InputError &error : result.errors)
    text += std::string(error.name) + " at " + std::to_string(error.offset) + " " + error.path +
            ": " + error.message + "\n";
  return text;
}

// A copy of exactly these bytes, so that a sanitizer sees every read behind them.
inline ReadResult read_exactly(std::string_view text, const ReadOptions &options = {}) {
  std::unique_ptr<char[]> bytes(new char[text.size()]);
  std::copy(text.begin(), text.end(), bytes.get());
  return read_json({bytes.get(), text.size()}, options);
}

} // namespace spmd::ir
