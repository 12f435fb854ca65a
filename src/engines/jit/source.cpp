#include "engines/jit/source.h"

#include <set>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "engines/jit/device/captured_arguments.h"
#include "engines/jit/render_op.h"
#include "store/store.h"

namespace fovea::jit {
namespace {

std::string element(DType dtype) {
  switch (dtype) {
    case DType::F32: return "F32";
    case DType::F16: return "F16";
    case DType::BF16: return "BF16";
    case DType::F64:
    case DType::I32:
    case DType::I64:
    case DType::U8:
    case DType::Bool: break;
  }
  throw InternalError("engine jit was given a tensor of type " + std::string(dtype_name(dtype)));
}

class ConfigText {
 public:
  void type(const char* name, DType dtype) {
    text_ += std::string("  using ") + name + " = " + element(dtype) + ";\n";
  }
  void number(const char* name, int value) { constant("int", name, std::to_string(value)); }
  void truth(const char* name, bool value) { constant("bool", name, value ? "true" : "false"); }
  const std::string& text() const { return text_; }

 private:
  void constant(const char* type, const char* name, const std::string& value) {
    text_ += std::string("  static constexpr ") + type + " " + name + " = " + value + ";\n";
  }
  std::string text_;
};

std::string config_text(const KernelRow& row, const Problem& baked, const KernelShape& shape,
                        const CapturedWords& captured_words) {
  ConfigText out;
  const bool backward = baked.direction == Direction::Backward;
  out.type("Element", baked.q.dtype);
  out.type("Output", baked.o.dtype);
  out.type("O", baked.o.dtype);
  out.truth("backward", backward);
  if (backward) {
    out.type("GradO", baked.grad_o.dtype);
    out.type("GradQ", baked.want_q ? baked.grad_q.dtype : baked.q.dtype);
    out.type("GradK", baked.want_k ? baked.grad_k.dtype : baked.q.dtype);
    out.type("GradV", baked.want_v ? baked.grad_v.dtype : baked.q.dtype);
  }
  out.number("d", shape.d);
  out.number("dv", shape.dv);
  out.number("dv_chunks", shape.dv_chunks);
  out.number("rows", shape.rows);
  out.number("columns", shape.columns);
  out.number("warps", shape.warps);
  out.number("threads", 32 * shape.warps);
  out.number("blocks", shape.blocks);
  out.number("shared_bytes", shape.shared_bytes);
  out.truth("dropout", baked.dropout > 0);
  out.truth("deterministic", baked.deterministic);
  out.truth("row_max", baked.row_max || baked.max_logit);
  if (backward) {
    out.truth("grad_lse", baked.grad_lse);
    out.truth("want_q", baked.want_q);
    out.truth("want_k", baked.want_k);
    out.truth("want_v", baked.want_v);
  }
  for (const KernelShape::Constant& constant : shape.own) out.number(constant.name, constant.value);
  if (row.writes_captured) {
    out.number("captured_first", captured_words.first);
    out.number("captured_count", captured_words.count);
  }
  const std::string captured = row.adds_captured ? "  using Terms = CapturedTerms;\n" : "";
  return "struct Config {\n" + captured + out.text() + "};\n";
}

// Headers that the formula's own text uses.
constexpr const char* formula_headers[] = {"formula.h", "math.h", "captured_range.h"};

constexpr const char* await_earlier = "  fovea::device::await_earlier_kernels();\n";

std::string include(const std::string& header) { return "#include \"" + header + "\"\n"; }

std::string own_text(const KernelRow& row, const Problem& baked, const KernelShape& shape,
                     const FormulaSource& source) {
  const Rendered& formula = source.formula;
  // In a kernel that takes maps half of the threads have few registers. A function that is called,
  // not inlined, might use more.
  const std::string inlines =
      row.maps_tensors ? "#define FOVEA_DEVICE_CALL __device__ __forceinline__\n" : "";
  const std::string parameters = row.maps_tensors
                                     ? "fovea::device::MappedArgumentsOf<fovea::device::Arguments>"
                                     : "fovea::device::Arguments";
  std::string out =
      inlines + include("primitives.h") + include("arguments.h") + include("element.h");
  if (row.asks_formula) {
    for (const char* const header : formula_headers) out += include(header);
  }
  const CapturedWords& written = source.captured_words;
  const int words = (row.asks_formula ? formula.words : 0) +
                    (row.writes_captured ? written.count * device::gradient_write_words : 0);
  out +=
      "namespace fovea::device {\nusing Arguments = ArgumentsOf<" + std::to_string(words) + ">;\n";
  if (row.asks_formula) out += formula.text + "\n";
  if (row.adds_captured) out += "struct CapturedTerms;\n";
  out += config_text(row, baked, shape, written) + "}  // namespace fovea::device\n";
  const std::string name = row.name;
  out += include(row.header);
  if (row.adds_captured) {
    out += include(row.maps_tensors ? "hopper/captured.h" : "captured_cells.h") +
           "namespace fovea::device {\n" +
           (row.maps_tensors ? source.hopper_captured : source.captured) +
           "}  // namespace fovea::device\n";
  }
  // Kernels that take maps wait for earlier ones themselves, after they have made their barriers.
  return out +
         "extern \"C\" __global__ void __launch_bounds__(fovea::device::Config::threads, "
         "fovea::device::Config::blocks)\n    fovea_" +
         name + "(const __grid_constant__ " + parameters + " a) {\n" +
         (row.maps_tensors ? "" : await_earlier) + "  fovea::device::" + name +
         "<fovea::device::Config>(a);\n}\n";
}

const cuda::NamedText* find_header(std::string_view name) {
  for (const cuda::NamedText& header : device_headers()) {
    if (name == header.name) return &header;
  }
  return nullptr;
}

// The name in a line `#include "name"`; empty for other lines.
std::string_view included(std::string_view line) {
  constexpr std::string_view start = "#include \"";
  if (!line.starts_with(start)) return {};
  line.remove_prefix(start.size());
  return line.substr(0, line.find('"'));
}

// The header that `file` means by a name: relative to its own folder, as a compiler sees it.
std::string resolved(const std::string& file, std::string_view name) {
  std::string folder = file.substr(0, file.rfind('/') + 1);
  for (; name.starts_with("../") && !folder.empty(); name.remove_prefix(3)) {
    folder.pop_back();
    folder.erase(folder.rfind('/') + 1);
  }
  return folder + std::string(name);
}

void expand_into(std::string& out, const std::string& text, const std::string& file,
                 std::set<std::string_view>& seen) {
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line == "#pragma once") line.clear();  // lines keep their numbers
    const cuda::NamedText* const header = find_header(resolved(file, included(line)));
    if (header == nullptr) {
      out += line + "\n";
      continue;
    }
    if (!seen.insert(header->name).second) {
      out += "\n";
      continue;
    }
    out += "#line 1 \"" + std::string(header->name) + "\"\n";
    expand_into(out, header->text, header->name, seen);
    out += "#line " + std::to_string(number + 1) + " \"" + file + "\"\n";
  }
}

}  // namespace

std::string expand(const std::string& text) {
  std::string out;
  std::set<std::string_view> seen;
  expand_into(out, text, "kernel", seen);
  return out;
}

const std::string& headers_hash() {
  static const std::string& hash = *new std::string([] {
    std::string all;
    for (const cuda::NamedText& header : device_headers()) {
      all += std::string(header.name) + "\n" + header.text + "\n";
    }
    return store::name_of({"jit", "headers", all});
  }());
  return hash;
}

TranslationUnit KernelSource::unit() const { return {name, expand(own)}; }

KernelSource source_of(const KernelRow& row, const Problem& baked, const KernelShape& shape,
                       const FormulaSource& formula) {
  KernelSource out;
  out.own = own_text(row, baked, shape, formula);
  out.name = std::string("fovea_") + row.name;
  return out;
}

KernelSource captured_source(const std::string& name, const std::string& parameters) {
  KernelSource out;
  out.own = include(name + ".h") + "extern \"C\" __global__ void fovea_" + name +
            "(const __grid_constant__ fovea::device::" + parameters + " call) {\n" + await_earlier +
            "  fovea::device::" + name + "(call);\n}\n";
  out.name = "fovea_" + name;
  return out;
}

KernelSource summary_source(DType dtype) {
  KernelSource out;
  out.name = "fovea_summarize_" + std::string(dtype_name(dtype));
  out.own = include("summarize.h") + "extern \"C\" __global__ void " + out.name +
            "(const __grid_constant__ fovea::device::SummarizeArguments call) {\n" + await_earlier +
            "  fovea::device::summarize<fovea::device::" + std::string(captured_type_text(dtype)) +
            ">(call);\n}\n";
  return out;
}

}  // namespace fovea::jit
