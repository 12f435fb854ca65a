// Programs: made from text, printed, compared, and asked what they capture.
#include "ir/program.h"

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "ir/bprop.h"
#include "ir/parse.h"
#include "ir/print.h"

using namespace fovea;
using namespace fovea::capi;

namespace {

std::string extents_text(const ir::TensorDecl& tensor) {
  static constexpr const char* names[] = {"", "B", "H", "Hkv", "Sq", "Skv"};
  std::string out;
  for (const ir::Extent& extent : tensor.extents) {
    if (!out.empty()) out += ",";
    out += extent.kind == ir::Extent::Kind::Number ? std::to_string(extent.number)
                                                   : names[static_cast<std::size_t>(extent.kind)];
  }
  return out;
}

void check_index(std::size_t i, std::size_t count, const char* what) {
  if (i < count) return;
  throw InvalidArgument("i is " + std::to_string(i) + ", but the program captures " +
                        std::to_string(count) + " " + what);
}

constexpr StructName info_name{"info", "fovea_capture_info"};

std::string bprop_text(const ir::BpropCheck& check) {
  char numbers[160];
  std::snprintf(numbers, sizeof numbers,
                "largest relative error %.3g at %d random points (seed %llu): bprop gives %.9g, "
                "the derivative %.9g",
                check.worst_error, check.points, static_cast<unsigned long long>(check.seed),
                check.hand, check.derived);
  return std::string(numbers) + " at " + check.worst_point;
}

}  // namespace

fovea_program_s::fovea_program_s(ir::Program made) : program(std::move(made)) {
  for (const ir::TensorDecl& tensor : program.tensors()) extents.push_back(extents_text(tensor));
}

fovea_status fovea_program_parse(const char* line, fovea_program* program) {
  return guarded([&] {
    need(program, "program");
    *program = nullptr;
    need(line, "line");
    *program = new fovea_program_s(ir::parse_program(line));
  });
}

void fovea_program_destroy(fovea_program program) { delete program; }

fovea_status fovea_program_print(fovea_program program, fovea_text_form form,
                                 fovea_report* report) {
  return guarded([&] {
    need(report, "report");
    *report = nullptr;
    const ir::Program& printed = content(program, "program").program;
    const bool indented = to_enum<int>(form, 2, "form", "fovea_text_form") == FOVEA_TEXT_INDENTED;
    *report = new_report(indented ? ir::print_indented(printed) : ir::print(printed));
  });
}

int fovea_program_equal(fovea_program a, fovea_program b) {
  return a != nullptr && b != nullptr && a->program == b->program ? 1 : 0;
}

fovea_status fovea_program_check_bprop(fovea_program program, uint64_t seed, int points,
                                       double* error, fovea_report* report) {
  return guarded([&] {
    if (report != nullptr) *report = nullptr;
    const ir::Program& checked = content(program, "program").program;
    need(error, "error");
    constexpr int most_points = 10'000'000;
    if (points < 1 || points > most_points) {
      throw InvalidArgument("points is " + std::to_string(points) + "; it must be 1 to " +
                            std::to_string(most_points));
    }
    const ir::BpropCheck check = ir::check_bprop(checked, seed, points);
    if (report != nullptr) *report = new_report(bprop_text(check));
    *error = check.worst_error;
  });
}

size_t fovea_program_tensor_count(fovea_program program) {
  return program == nullptr ? 0 : program->program.tensors().size();
}

size_t fovea_program_scalar_count(fovea_program program) {
  return program == nullptr ? 0 : program->program.scalars().size();
}

fovea_status fovea_program_tensor(fovea_program program, size_t i, fovea_capture_info* info) {
  return guarded([&] {
    const fovea_program_s& asked = content(program, "program");
    clear_struct(info, info_name);
    check_index(i, asked.program.tensors().size(), "tensors");
    const ir::TensorDecl& tensor = asked.program.tensors()[i];
    info->name = tensor.name.c_str();
    info->dtype = from_dtype(tensor.dtype);
    info->rank = static_cast<std::int32_t>(tensor.extents.size());
    info->extents = asked.extents[i].c_str();
    info->data = tensor.data.c_str();
  });
}

fovea_status fovea_program_scalar(fovea_program program, size_t i, fovea_capture_info* info) {
  return guarded([&] {
    const fovea_program_s& asked = content(program, "program");
    clear_struct(info, info_name);
    check_index(i, asked.program.scalars().size(), "scalars");
    const ir::ScalarDecl& scalar = asked.program.scalars()[i];
    info->name = scalar.name.c_str();
    info->dtype = scalar.type == ir::Type::F32 ? FOVEA_F32 : FOVEA_I32;
    info->extents = info->data = "";
    info->value = scalar.value.value_or(0);
    info->has_value = scalar.value.has_value() ? 1 : 0;
  });
}
