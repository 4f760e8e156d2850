// What is wrong with a document is said once, with its name, offset and key path, and one fault
// hides no other.
#include "ir/text/lexer.h"

#include "tests/unit/json_sample.h"

#include "tests/unit/catch.h"

#include <tuple>

using namespace spmd::ir;

namespace {

struct Bad {
  std::string_view from, to; // what stands in the sample, and in its place
  std::string_view name, path, message;
  std::string_view at = {}; // where the error is, in `to` or behind it; empty: at the start of `to`
};

// clang-format off
// One row for each error of ir/README.md, and for each known key with a wrong value.
constexpr Bad kBad[] = {
    // The document.
    {R"~("format": "spmd-trace")~", R"~("format": "onnx")~",
     "trace-syntax", "format", "the format is `onnx`", R"~("onnx")~"},
    {R"~("format": "spmd-trace", )~", "", "trace-key", "format", "`format` is missing", "{"},
    {R"~("version": "1.0",)~", "", "trace-key", "version", "`version` is missing", "{"},
    {R"~("version": "1.0")~", R"~("version": 1)~",
     "trace-key", "version", "a number stands where a string", "1,"},
    {R"~("version": "1.0")~", R"~("version": "2.0")~",
     "trace-version", "version", "only 1.N is", R"~("2.0")~"},
    {R"~("version": "1.0")~", R"~("version": "one")~",
     "trace-version", "version", "no version", R"~("one")~"},
    {R"~("requires": [])~", R"~("requires": ["scans"])~",
     "trace-feature", "requires[0]", "`scans`", R"~("scans")~"},
    {R"~({"name": "hand", "frontend": "fx"})~", R"~({"name": 1})~",
     "trace-key", "producer.name", "a number", "1}"},
    {R"~({"name": "hand", "frontend": "fx"})~", "[]",
     "trace-key", "producer", "a list stands where an object", "[]"},
    {R"~("dialect": "spmd")~", R"~("dialect": null)~",
     "trace-key", "dialect", "null stands", "null"},
    {R"~("mode": "global")~", R"~("mode": "locla")~",
     "trace-key", "mode", "nearest is `local`", R"~("locla")~"},
    {R"~("phase": "step")~", R"~("phase": "steps")~",
     "trace-key", "phase", "nearest is `step`", R"~("steps")~"},
    {R"~(["grads", "locs"])~", R"~(["grads", "loc"])~",
     "trace-key", "missing[1]", "nearest is `locs`", R"~("loc")~"},
    {R"~("world": 16)~", R"~("world": "x")~",
     "trace-mesh", "world", "no symbol is named `x`", R"~("x")~"},
    {R"~("world": 16)~", R"~("world": 8)~", "trace-mesh", "world", "mesh `m` has 16 ranks", "8,"},
    {R"~("rank": 3)~", R"~("rank": 16)~", "trace-mesh", "rank", "rank 16 is outside", "16, \"op"},
    {R"~("rank": 3)~", R"~("rank": 03)~", "trace-syntax", "rank", "a malformed number", "03"},
    {R"~("rank": 3)~", R"~("rank": 3x)~", "trace-syntax", "rank", "a malformed number", "3x"},
    {R"~("rank": 3)~", R"~("rank": 9007199254740993)~",
     "trace-limit", "rank", "beyond 2^53", "9007199254740993"},
    {R"~("rank": 3)~", R"~("rank": 1.5)~", "trace-key", "rank", "a fraction", "1.5"},
    {R"~("op_count": 6)~", R"~("op_count": 5)~",
     "trace-truncated", "op_count", "5 ops are announced", "5,"},
    {R"~("op_count": 6)~", R"~("op_count": -1)~", "trace-key", "op_count", "-1 is outside", "-1"},
    {R"~("x_user": {"any": [1, 2, "t"]})~", R"~("x_user": {"any": [1, 2 "t"]})~",
     "trace-syntax", "x_user.any[1]", "`,` or `]`", R"~("t")~"},
    {R"~("x_user")~", R"~("mode")~", "trace-key", "mode", "`mode` is repeated", R"~("mode": {)~"},
    // Symbols, meshes and groups.
    {R"~("min": 4)~", R"~("min": "4")~", "trace-key", "symbols.s0.min", "a string", R"~("4")~"},
    {R"~("max": 64)~", R"~("max": 2)~", "trace-shape", "symbols.s0", "above", R"~({"min")~"},
    {R"~("multiple_of": 4)~", R"~("multiple_of": 0)~",
     "trace-shape", "symbols.s0.multiple_of", "0 is outside", "0,"},
    {R"~("meshes": [)~", R"~("meshes": 4, "x_": [)~", "trace-key", "meshes", "a number", "4"},
    {R"~("meshes": [)~", R"~("meshes": [], "x_": [)~", "trace-mesh", "meshes", "empty", "[]"},
    {R"~("meshes": [)~", R"~("x_": [)~", "trace-key", "meshes", "`meshes` is missing", "{"},
    {R"~("id": "m")~", R"~("id": "m.n")~",
     "trace-key", "meshes[0].id", "no name of a mesh", R"~("m.n")~"},
    {R"~("id": "half")~", R"~("id": "m")~",
     "trace-duplicate", "meshes[1].id", "declared twice", R"~("m", "axes": ["tp)~"},
    {R"~({"id": "m", )~", "{", "trace-key", "meshes[0].id", "missing", R"~({"axes")~"},
    {R"~("name": "tp", "size": 4)~", R"~("name": "R", "size": 4)~",
     "trace-key", "meshes[0].axes[1].name", "a kind", R"~("R")~"},
    {R"~("name": "all")~", R"~("name": "dp")~",
     "trace-mesh", "meshes[0]", "twice", R"~({"id": "m")~"},
    {R"~("name": "tp", "size": 4)~", R"~("name": "tp", "size": 0)~",
     "trace-mesh", "meshes[0]", "size 0", R"~({"id": "m")~"},
    {R"~("name": "tp", "size": 4)~", R"~("name": "tp")~",
     "trace-mesh", "meshes[0].axes[1]", "none of `size`", R"~({"name": "tp")~"},
    {R"~("name": "tp", "size": 4)~", R"~("name": "tp", "size": "s1")~",
     "trace-mesh", "meshes[0].axes[1].size", "no symbol is named", R"~("s1"},)~"},
    {R"~("size": 4, "stride": 4)~", R"~("size": 4, "stride": 1)~",
     "trace-mesh", "meshes[0]", "overlap", R"~({"id": "m")~"},
    {R"~("policy": "local")~", R"~("policy": "mine")~",
     "trace-key", "meshes[0].axes[0].policy", "no policy", R"~("mine")~"},
    {R"~("of": ["dp", "tp"])~", R"~("of": ["dp", "ep"])~",
     "trace-mesh", "meshes[0].axes[2].of[1]", "`ep`", R"~("ep")~"},
    {R"~("of": ["dp", "tp"])~", R"~("of": [])~",
     "trace-mesh", "meshes[0].axes[2].of", "no pieces", "[]}]"},
    {R"~("axes": ["tp", {"name": "one")~", R"~("axes": ["pp", {"name": "one")~",
     "trace-mesh", "meshes[1].axes[0]", "no axis `pp`", R"~("pp")~"},
    {R"~([[2, 4]])~", R"~([[2]])~",
     "trace-mesh", "meshes[1].axes[1].layout[0]", "not a size and a stride", "[2]"},
    {R"~("offset": 8)~", R"~("offset": -8)~", "trace-mesh", "meshes[1].offset", "-8", "-8"},
    {R"~({"mesh": "m", "at": {"dp": 2}})~", R"~({"mesh": "n", "at": {"dp": 2}})~",
     "trace-reference", "meshes[1].within.mesh", "`n`", R"~("n")~"},
    {R"~("at": {"dp": 2})~", R"~("at": {"dp": 4})~",
     "trace-mesh", "meshes[1].within.at.dp", "no coordinate 4", "4}"},
    {R"~("0": {"mesh": "m", "axes": ["tp"]})~", R"~("0": {})~",
     "trace-mesh", "groups.0", "neither", "{}"},
    {R"~("0": {"mesh": "m", "axes": ["tp"]})~", R"~("0": {"mesh": "m", "axes": ["xp"]})~",
     "trace-mesh", "groups.0.axes[0]", "`xp`", R"~("xp")~"},
    {R"~([0, 3, 5])~", R"~([0, 3, 3])~",
     "trace-mesh", "groups.2.ranks[2]", "rank 3 stands twice", "3]}"},
    {R"~([0, 3, 5])~", "[]", "trace-mesh", "groups.2.ranks", "no ranks", "[]}"},
    {R"~({"mesh": "m", "axes": ["tp"]})~", R"~({"mesh": "m", "axes": []})~",
     "trace-mesh", "groups.0.axes", "no axes", "[]}"},
    {R"~([[2, 8]])~", R"~([[0, 8]])~",
     "trace-mesh", "groups.1.layout[0]", "size or stride 0", "[0, 8]"},
    {R"~([[2, 8]])~", R"~([[2, 0]])~",
     "trace-mesh", "groups.1.layout[0]", "size or stride 0", "[2, 0]"},
    // Tables.
    {R"~("files": ["a.py")~", R"~("files": [4)~",
     "trace-key", "files[0]", "a number", "4, {\"path"},
    {R"~("sha256": "0123)~", R"~("sha256": "123)~",
     "trace-key", "files[1].sha256", "64", R"~("123)~"},
    {R"~({"file": 0, "line": 3)~", R"~({"file": 2, "line": 3)~",
     "trace-reference", "locs[0].file", "entry 2 of `files`", "2, \"line"},
    {R"~({"file": 0, "line": 3)~", R"~({"file": 0)~",
     "trace-key", "locs[0].line", "missing", R"~({"file": 0)~"},
    {R"~("end": [3, 9])~", R"~("end": [3])~", "trace-key", "locs[0].end", "1 numbers", "[3]"},
    {R"~("caller": 0)~", R"~("caller": 1)~",
     "trace-reference", "locs[1].caller", "entry 1 of `locs`", "1}]"},
    {R"~("scopes": ["layers.0")~", R"~("scopes": [0)~",
     "trace-key", "scopes[0]", "a number", "0, \"layers"},
    {R"~("contexts": [{"mesh": "m"})~", R"~("contexts": [{"mesh": "mm"})~",
     "trace-reference", "contexts[0].mesh", "nearest is `m`", R"~("mm")~"},
    {R"~("local": ["tp"])~", R"~("local": ["tpp"])~",
     "trace-mesh", "contexts[1].local[0]", "nearest is `tp`", R"~("tpp")~"},
    {R"~("check": false)~", R"~("check": 0)~",
     "trace-key", "contexts[1].check", "a number", "0, \"grad"},
    {R"~("f(g[...]) * u[...] -> [...]")~", R"~("f(g)")~",
     "trace-rule", "rules.my.swiglu", "`->`", R"~("f(g)")~"},
    {R"~({"like": "gelu"})~", "{}", "trace-key", "rules.my.gelu.like", "missing", "{}"},
    {R"~("reason": "known")~", R"~("reason": "")~",
     "trace-key", "suppress[0].reason", "empty", R"~("", "until)~"},
    {R"~("reason": "known", )~", "",
     "trace-key", "suppress[0].reason", "missing", R"~({"ignore")~"},
    {R"~("2030-01-31")~", R"~("2030-13-31")~",
     "trace-key", "suppress[0].until", "no date", R"~("2030-13)~"},
    {R"~("ignore": "no-spec")~", R"~("ignore": "no spec")~",
     "trace-key", "suppress[0].ignore", "no name of a finding", R"~("no spec")~"},
    // Functions, parameters and outputs.
    {R"~("@opaque": {)~", R"~("opaque": {)~",
     "trace-key", "functions.opaque", "no name of a function", "{\"params\": [{\"id\": \"%i\"}], \"out"},
    {R"~("results": ["%o"])~", R"~("results": ["%p"])~",
     "trace-reference", "functions.@body.results[0]", "`%p`", R"~("%p")~"},
    {R"~(, "results": ["%o"])~", "",
     "trace-key", "functions.@body.results", "missing", R"~({"ctx": 1, "params)~"},
    {R"~("regions": {"body": "@body"})~", R"~("regions": {"body": "@bodi"})~",
     "trace-reference", "ops[3].regions.body", "nearest is `@body`", R"~("@bodi")~"},
    {R"~("regions": {"body": "@body"})~", R"~("regions": {"axis": "@body"})~",
     "trace-key", "ops[3].regions.axis", "an attribute too", R"~("@body"},)~"},
    {R"~({"ctx": 1, "params")~", R"~({"ctx": 2, "params")~",
     "trace-reference", "functions.@body.ctx", "entry 2 of `contexts`", "2, \"params"},
    {R"~("role": "input")~", R"~("role": "inputs")~",
     "trace-key", "params[0].role", "nearest is `input`", R"~("inputs")~"},
    {R"~("role": "input", )~", "",
     "trace-key", "params[0].role", "missing", R"~({"id": "%0", "dtype)~"},
    {R"~({"id": "%w", )~", R"~({"id": "%0", )~",
     "trace-duplicate", "params[1].id", "`%0` is defined twice", R"~("%0", "role": "param")~"},
    {R"~({"id": "%w", )~", R"~({"id": "w", )~",
     "trace-key", "params[1].id", "no value", R"~("w")~"},
    {R"~("shape": [8, "s0"])~", R"~("shape": [8, "s1"])~",
     "trace-shape", "params[0].shape[1]", "nearest is `s0`", R"~("s1")~"},
    {R"~("shape": [8, "s0"])~", R"~("shape": [-8, "s0"])~",
     "trace-shape", "params[0].shape[0]", "-8", "-8"},
    {R"~("shape": [8, "s0"])~", R"~("shape": [8, "s0 +"])~",
     "trace-shape", "params[0].shape[1]", "no extent", R"~("s0 +")~"},
    {R"~("gshape": [8, "s0*4"])~", R"~("gshape": [8])~",
     "trace-shape", "params[0].gshape", "has 1 dimensions", "[8], \"type"},
    {R"~("dtype": "f32", "shape": [8, "s0"])~", R"~("dtype": "fp32", "shape": [8, "s0"])~",
     "trace-key", "params[0].dtype", "nearest is `f32`", R"~("fp32")~"},
    {R"~({"dp": "R", "tp": "S(-1)"})~", R"~({"dp": "Q", "tp": "S(-1)"})~",
     "trace-type", "params[0].type.dp", "`Q` is no kind", R"~("Q")~"},
    {R"~({"dp": "R", "tp": "S(-1)"})~", R"~({"dp": "R", "tp": "S(2)"})~",
     "trace-type", "params[0].type", "2 dimensions", R"~({"dp": "R", "tp": "S(2)"})~"},
    {R"~({"dp": "R", "tp": "S(-1)"})~", R"~({"ep": "R"})~",
     "trace-type", "params[0].type.ep", "no axis `ep`", R"~("R"}, "loc)~"},
    {R"~("spec": [["dp", "tp"], null])~", R"~("spec": [["dp", "tp"]])~",
     "trace-type", "params[1].spec", "1 entries for 2 dimensions", R"~([["dp", "tp"]])~"},
    {R"~("spec": [["dp", "tp"], null])~", R"~("spec": [["dp", "dp"], null])~",
     "trace-type", "params[1].spec", "two dimensions", R"~([["dp", "dp"])~"},
    {R"~("spec": [["dp", "tp"], null])~", R"~("spec": [4, null])~",
     "trace-key", "params[1].spec[0]", "an axis or a list", "4, null"},
    {R"~("scale": "1/dp")~", R"~("scale": "1+dp")~",
     "trace-type", "params[1].scale", "no scale", R"~("1+dp")~"},
    {R"~("scale": "1/dp")~", R"~("scale": "1/pp")~",
     "trace-type", "params[1].scale", "`pp`", R"~("1/pp")~"},
    {R"~("requires_grad": true)~", R"~("requires_grad": "yes")~",
     "trace-key", "params[1].requires_grad", "a boolean", R"~("yes")~"},
    {R"~("op": "avg"}])~", R"~("op": "max"}])~",
     "trace-key", "params[1].grad.sync[0].op", "no reduction", R"~("max"}])~"},
    {R"~([{"axis": "tp", "op": "avg"}])~", R"~([{"axis": "xp"}])~",
     "trace-type", "params[1].grad.sync[0].axis", "no axis `xp`", R"~("xp")~"},
    {R"~("step": {"type": {"dp": "S(0)", "tp": "R"}})~", R"~("step": {"cp": "S(0)"})~",
     "trace-key", "params[1].grad.step", "nothing is claimed", R"~({"cp")~"},
    {R"~("value": "%4")~", R"~("value": "%5")~",
     "trace-reference", "outputs[0].value", "`%5`", R"~("%5")~"},
    {R"~("role": "grad")~", R"~("role": "gradient")~",
     "trace-key", "outputs[0].role", "no role", R"~("gradient")~"},
    {R"~("of": "%w")~", R"~("of": "%v")~", "trace-reference", "outputs[0].of", "`%v`", R"~("%v")~"},
    // Operations.
    {R"~({"op": "scale", )~", R"~({)~",
     "trace-key", "ops[2].op", "missing", R"~({"in": ["%1"], "attrs": {"by)~"},
    {R"~("op": "scale")~", R"~("op": "2scale")~",
     "trace-key", "ops[2].op", "no name of an op", R"~("2scale")~"},
    {R"~("in": ["%0", "%w", 2)~", R"~("in": ["%2", "%w", 2)~",
     "trace-reference", "ops[0].in[0]", "not defined before", R"~("%2")~"},
    {R"~("in": ["%0", "%w", 2)~", R"~("in": ["%0", "x", 2)~",
     "trace-key", "ops[0].in[1]", "`x` is no value", R"~("x")~"},
    {R"~({"str": "a\nb"})~", R"~({"text": "a"})~",
     "trace-key", "ops[0].in[6]", "an object stands", R"~({"text")~"},
    {R"~({"num": "inf"})~", R"~({"num": "infinity"})~",
     "trace-key", "ops[0].in[8].num", "no number", R"~("infinity")~"},
    {R"~("kw": {"bias": "%w")~", R"~("kw": {"bias": "%x")~",
     "trace-reference", "ops[0].kw.bias", "`%x`", R"~("%x")~"},
    {R"~("partial": ["dp", "tp"])~", R"~("partial": ["dp", 1])~",
     "trace-key", "ops[0].attrs.partial[1]", "a number", "1], \"eps"},
    {R"~("src": ["P", "V"])~", R"~("src": ["P", "S(022)"])~",
     "trace-type", "ops[0].attrs.src[1]", "S(22) is beyond the limit of 15", R"~("S(022)")~"},
    {R"~("src": ["P", "V"])~", R"~("src": ["P", "W"])~",
     "trace-type", "ops[0].attrs.src[1]", "`W` is no kind", R"~("W")~"},
    {R"~("eps": 1e-5)~", R"~("eps": 1e999)~",
     "trace-limit", "ops[0].attrs.eps", "beyond the range", "1e999"},
    {R"~("eps": 1e-5)~", R"~("eps": 01)~",
     "trace-syntax", "ops[0].attrs.eps", "malformed number", "01"},
    {R"~("eps": 1e-5)~", R"~("eps": tru)~",
     "trace-syntax", "ops[0].attrs.eps", "where a value", "tru"},
    {R"~("eps": 1e-5)~", R"~("eps": 1152921504606846976)~",
     "trace-limit", "ops[0].attrs.eps", "2^53", "115"},
    {R"~("eps": 1e-5)~", R"~("partial": "tp")~",
     "trace-key", "ops[0].attrs.partial", "repeated", R"~("partial": "tp")~"},
    {R"~("eps": 1e-5)~", R"~("eps": "\q")~",
     "trace-syntax", "ops[0].attrs.eps", "no escape", R"~(\q)~"},
    {R"~("eps": 1e-5)~", R"~("eps": "\ud800")~",
     "trace-encoding", "ops[0].attrs.eps", "surrogate", R"~(\ud800)~"},
    {R"~("by": "1/(dp*tp)")~", R"~("by": true)~",
     "trace-key", "ops[2].attrs.by", "an integer", "true}"},
    {R"~({"id": "%3"})~", R"~({"id": "%1"})~",
     "trace-duplicate", "ops[2].out[0].id", "`%1` is defined twice", R"~("%1"}]},)~"},
    {R"~({"id": "%3"})~", R"~({"dtype": "f32"})~",
     "trace-key", "ops[2].out[0].id", "missing", R"~({"dtype": "f32"}]})~"},
    {R"~("alias_of": "%w")~", R"~("alias_of": "%9")~",
     "trace-reference", "ops[0].out[0].alias_of", "`%9`", R"~("%9")~"},
    {R"~("grad_of": "%0")~", R"~("grad_of": 0)~",
     "trace-key", "ops[0].out[0].grad_of", "a number", "0, \"requires"},
    {R"~({"id": "%1", "mesh": "m")~", R"~({"id": "%1", "mesh": "q")~",
     "trace-reference", "ops[0].out[0].mesh", "`q`", R"~("q")~"},
    {R"~("mut": [1, 10])~", R"~("mut": [12])~",
     "trace-reference", "ops[0].mut[0]", "operand 12 of 11", "12]"},
    {R"~("mut": [1, 10])~", R"~("mut": [1, 1])~",
     "trace-key", "ops[0].mut[1]", "repeated", "1], \"phase"},
    {R"~("phase": "bwd")~", R"~("phase": "back")~",
     "trace-key", "ops[0].phase", "no phase", R"~("back")~"},
    {R"~("bwd_of": "%0")~", R"~("bwd_of": "%1")~",
     "trace-reference", "ops[0].bwd_of", "`%1`", R"~("%1", "ctx)~"},
    {R"~("ctx": 1, "loc")~", R"~("ctx": 2, "loc")~",
     "trace-reference", "ops[0].ctx", "entry 2 of `contexts`", "2, \"loc"},
    {R"~("loc": 1, "scope")~", R"~("loc": 2, "scope")~",
     "trace-reference", "ops[0].loc", "entry 2 of `locs`", "2, \"scope"},
    {R"~("scope": 1)~", R"~("scope": -1)~", "trace-reference", "ops[0].scope", "-1", "-1"},
    {R"~("ignore": ["unknown-op"])~", R"~("ignore": [1])~",
     "trace-key", "ops[0].ignore[0]", "a number", "1],\n"},
    {R"~({"error": "spec-mismatch", "axes": ["tp"]})~", "{}",
     "trace-key", "ops[0].expect[0]", "neither `error`", "{}"},
    {R"~("type": {"tp": "P(max)"})~", R"~("type": {"tp": "P(mean)"})~",
     "trace-type", "ops[0].expect[1].type.tp", "no kind", R"~("P(mean)")~"},
    {R"~("in_types": [)~", R"~("in_types": 1, "x": [)~",
     "trace-key", "ops[3].attrs.in_types", "a list", "1, \"x\""},
    {R"~({"type": {"tp": "V"}, "spec": [null, "tp"]})~",
     R"~({"type": {"tp": "V"}, "spec": ["tp"]})~",
     "trace-type", "ops[3].attrs.in_types[0].spec", "1 entries", R"~(["tp"]}])~"},
    {R"~("type": {"one": "V"})~", R"~("type": {"dp": "V"})~",
     "trace-type", "ops[4].attrs.type.dp", "mesh `half` has no axis `dp`", R"~("V"}}})~"},
    {R"~("op": "to_local", "in")~", R"~("op": "to_local" "in")~",
     "trace-syntax", "ops[5].op", "`,` or `}`", R"~("in": ["%0"], "attrs": {"grad)~"},
    {R"~("op": "to_local", "in")~", R"~("op": "to_local", in)~",
     "trace-syntax", "ops[5]", "where a key", "in:"},
    {R"~("op": "to_local", "in": [)~", R"~("op": "to_local", "in": ])~",
     "trace-syntax", "ops[5].in", "where a value", R"~(]"%0")~"},
};
// clang-format on

} // namespace

TEST_CASE("each error has its name, place and path") {
  for (const Bad &row : kBad) {
    std::string text = replaced(row.from, row.to);
    size_t start = kSample.find(row.from);
    size_t offset =
        row.at == "{" ? 0 : text.find(row.at, row.at[0] == '{' && row.at.size() > 1 ? 0 : start);
    ReadResult result = read_exactly(text);
    INFO(row.to << "\n" << described(result));
    REQUIRE(!result.errors.empty());
    bool found =
        std::any_of(result.errors.begin(), result.errors.end(), [&](const InputError &error) {
          return error.name == row.name && error.path == row.path && error.offset == offset &&
                 error.message.find(row.message) != std::string::npos;
        });
    CHECK(found);
  }
}

TEST_CASE("a fault in one op hides no other") {
  std::string text = replaced(R"~("in": ["%0", "%w", 2)~", R"~("in": ["%7", "%8", 2)~");
  text.replace(text.find("\"by\": \"1/(dp*tp)\""), 17, "\"by\": \"(\"        ");
  ReadResult result = read_exactly(text);
  INFO(described(result));
  REQUIRE(result.errors.size() == 3);
  CHECK(result.errors[2].path == "ops[2].attrs.by");
}

TEST_CASE("what is no document says what it is") {
  const std::tuple<std::string, std::string_view, std::string_view> kTexts[] = {
      {"", "trace-syntax", "empty"},
      {" \n", "trace-syntax", "empty"},
      {"[1]", "trace-key", "a list stands where an object"},
      {"\xEF\xBB\xBF{}", "trace-encoding", "byte order mark"},
      {std::string(kSample) + "\n{\"op\": \"gelu\"}\n", "trace-syntax", "a second JSON value"},
      {std::string(kSample) + "]", "trace-syntax", "`]` follows"},
      {"{\"format\": \"spmd-trace", "trace-syntax", "not closed"},
      {"{\"format\": \"a\nb\"}", "trace-syntax", "control character"},
      {"{\"format\": \"\xC3\x28\"}", "trace-encoding", "0xC3"},
      {"{\"x_\": " + std::string(80, '[') + std::string(80, ']') + "}", "trace-limit",
       "nested more than 64"},
      {"{\"x_\": \"" + std::string(kMaxString + 1, 'a') + "\"}", "trace-limit", "bytes"},
      {"{\"meshes\": " + std::string(1000, '['), "trace-limit", "nested"},
  };
  for (const auto &[text, name, message] : kTexts) {
    ReadResult result = read_exactly(text);
    INFO(text.substr(0, 80) << "\n" << described(result));
    CHECK(std::any_of(result.errors.begin(), result.errors.end(),
                      [&, name = name, message = message](const InputError &error) {
                        return error.name == name &&
                               error.message.find(message) != std::string::npos;
                      }));
  }
}

TEST_CASE("values are nested as deep as text can print them") {
  const std::string_view from = R"~("nest": {"a": [1, "x"]})~";
  auto nested = [&](size_t depth) {
    std::string list = std::string(depth, '[') + std::string(depth, ']');
    return read_exactly(replaced(from, "\"nest\": {\"a\": " + list + "}"));
  };
  CHECK(nested(kMaxValueNesting - 1).errors.empty());
  ReadResult deep = nested(kMaxValueNesting);
  REQUIRE(deep.errors.size() == 1);
  CHECK(deep.errors[0].name == "trace-limit");
  CHECK(deep.errors[0].message.find("nested more than 24") != std::string::npos);
  // Parentheses of an extent count for themselves.
  std::string extent = "s0";
  for (int i = 0; i < 100; ++i)
    extent = "s0-(" + extent + ")";
  ReadResult shaped =
      read_exactly(replaced(R"~("gshape": [8, "s0*4"])~", "\"gshape\": [8, \"" + extent + "\"]"));
  REQUIRE(shaped.errors.empty());
  CHECK(read_text(print_text(shaped.program)).errors.empty());
}

TEST_CASE("limits hold") {
  auto with_axes = [](unsigned count) {
    std::string axes;
    for (unsigned i = 0; i < count; ++i)
      axes += (i ? ", {\"name\": \"a" : "{\"name\": \"a") + std::to_string(i) + "\", \"size\": 1}";
    return R"~({"format": "spmd-trace", "version": "1.0", "meshes": [{"id": "m", "axes": [)~" +
           axes + R"~(]}], "ops": []})~";
  };
  CHECK(read_exactly(with_axes(16)).errors.empty());
  REQUIRE(read_exactly(with_axes(17)).errors.size() == 1);
  CHECK(read_exactly(with_axes(17)).errors[0].name == "trace-limit");
  CHECK(read_exactly(with_axes(17)).errors[0].path == "meshes[0].axes");
  std::string fifteen = "1", sixteen;
  for (int i = 1; i < 15; ++i)
    fifteen += ", 1";
  sixteen = fifteen + ", 1";
  std::string from = R"~("dtype": "f32", "shape": [4])~";
  CHECK(read_exactly(replaced(from, R"~("dtype": "f32", "shape": [)~" + fifteen + "]"))
            .errors.empty());
  ReadResult wide = read_exactly(replaced(from, R"~("dtype": "f32", "shape": [)~" + sixteen + "]"));
  REQUIRE(wide.errors.size() == 1);
  CHECK(wide.errors[0].name == "trace-limit");
  CHECK(wide.errors[0].path == "ops[1].attrs.shape");
  std::string many =
      R"~({"format": "spmd-trace", "version": "1.0", "meshes": [{"id": "m", "axes": [{"name": "a", "size": 2}]}], "ops": [)~";
  for (int i = 0; i < 100; ++i)
    many += i ? R"~(, {"op": "gelu", "in": ["%9"]})~" : R"~({"op": "gelu", "in": ["%9"]})~";
  CHECK(read_exactly(many + "]}").errors.size() == kMaxInputErrors);
}
