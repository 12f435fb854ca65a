// Versioned structs: sizes, defaults, and versions that are yet to come.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "tests/capi/c_call.h"

namespace {

using namespace fovea::testing;

std::string create(const void* config) {
  fovea_problem problem = nullptr;
  const fovea_status status =
      fovea_problem_create(static_cast<const fovea_problem_config*>(config), &problem);
  const Owned<fovea_problem> owned(problem);
  EXPECT_EQ(status == FOVEA_OK, problem != nullptr);
  return status == FOVEA_OK ? "accepted" : fovea_last_error();
}

// A struct of a later version: 24 bytes more.
struct Later {
  fovea_problem_config config{};
  std::uint64_t more[3]{};
  Later() {
    static_assert(sizeof(Later) == sizeof(fovea_problem_config) + sizeof more);
    config.struct_size = sizeof(Later);
  }
};

TEST(Structs, SizesOfStructsAreChecked) {
  fovea_problem_config config{};
  const std::string right = std::to_string(sizeof config);
  EXPECT_EQ(create(&config),
            "config.struct_size is 0; set it to sizeof(fovea_problem_config), " + right + " here");
  config.struct_size = 8;
  EXPECT_EQ(create(&config),
            "config.struct_size is 8; too small: set it to "
            "sizeof(fovea_problem_config), " +
                right + " here");
  config.struct_size = offsetof(fovea_problem_config, tensor_strides) - 1;
  EXPECT_NE(create(&config).find("too small"), std::string::npos);
  config.struct_size = std::size_t{1} << 40;
  EXPECT_NE(create(&config).find("too large"), std::string::npos);
  config.struct_size = sizeof config;
  EXPECT_EQ(create(&config), "accepted");
}

TEST(Structs, ALaterVersionIsFineAsLongAsItsNewFieldsAreZero) {
  Later later;
  EXPECT_EQ(create(&later), "accepted");
  later.more[2] = 1;
  const std::string text = create(&later);
  EXPECT_NE(text.find("a later version's and sets fields that Fovea " +
                      std::string(fovea_version()) + " does not know"),
            std::string::npos)
      << text;
}

// The first version of fovea_problem_config had no tensor_strides.
TEST(Structs, AnEarlierVersionsConfigIsReadAndWrittenAsFarAsItGoes) {
  constexpr std::size_t first = offsetof(fovea_problem_config, tensor_strides);
  fovea_problem_config config{};
  std::memset(reinterpret_cast<char*>(&config) + first, 0x5a, sizeof config - first);
  config.struct_size = first;
  EXPECT_EQ(create(&config), "accepted");
  fovea_problem problem = nullptr;
  ASSERT_EQ(fovea_problem_parse("h=2 sq=8 d=4 values=device", &problem, nullptr), FOVEA_OK);
  const Owned<fovea_problem> owned(problem);
  ASSERT_EQ(fovea_problem_describe(problem, &config), FOVEA_OK);
  EXPECT_EQ(config.sizes.h, 2);
  EXPECT_EQ(config.device_values, 0x5a5a5a5a);  // not ours to write
  config.struct_size = sizeof config;
  ASSERT_EQ(fovea_problem_describe(problem, &config), FOVEA_OK);
  EXPECT_EQ(config.device_values, 1);
}

// The first version of fovea_plan_options had no partner.
TEST(Structs, AnEarlierVersionsOptionsAreReadAsFarAsTheyGo) {
  struct First {
    std::size_t struct_size;
    const char *engine, *device;
    fovea_problem not_ours;  // what lies behind must not be read
  } first{offsetof(First, not_ours), "reference", nullptr, nullptr};
  std::memset(&first.not_ours, 0xff, sizeof first.not_ours);
  fovea_problem problem = nullptr;
  ASSERT_EQ(fovea_problem_parse("h=2 sq=8 d=4", &problem, nullptr), FOVEA_OK);
  const Owned<fovea_problem> owned(problem);
  fovea_answer answer = FOVEA_NO;
  EXPECT_EQ(fovea_supported(problem, reinterpret_cast<const fovea_plan_options*>(&first), &answer,
                            nullptr),
            FOVEA_OK)
      << fovea_last_error();
  EXPECT_NE(answer, FOVEA_NO);
}

TEST(Pair, HasOneProblemOfEachDirection) {
  fovea_problem forward = nullptr, backward = nullptr;
  ASSERT_EQ(fovea_problem_parse("h=2 sq=8 d=4 direction=both", &forward, &backward), FOVEA_OK);
  const Owned<fovea_problem> first(forward), second(backward);
  fovea_plan_options options = reference_options();
  fovea_answer answer = FOVEA_NO;
  options.partner = backward;
  EXPECT_EQ(fovea_supported(forward, &options, &answer, nullptr), FOVEA_OK);
  EXPECT_EQ(fovea_supported(backward, &options, &answer, nullptr), FOVEA_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_last_error(),
               "options.partner is a backward, as is the problem; a pair is a forward and a "
               "backward");
}

TEST(Structs, OutputStructsOfALaterVersionAreClearedBeyondWhatIsKnown) {
  struct {
    fovea_cache_stats stats{};
    std::uint64_t more[2] = {7, 7};
  } later;
  later.stats.struct_size = sizeof later;
  ASSERT_EQ(fovea_cache_statistics(&later.stats), FOVEA_OK);
  EXPECT_EQ(later.stats.struct_size, sizeof later);
  EXPECT_EQ(later.more[0], 0u);
  EXPECT_EQ(later.more[1], 0u);
}

TEST(Structs, FillingNoFieldWorks) {
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  fovea_problem problem = nullptr;
  ASSERT_EQ(fovea_problem_create(&config, &problem), FOVEA_OK) << fovea_last_error();
  const Owned<fovea_problem> owned(problem);
  fovea_plan_options options{};
  options.struct_size = sizeof options;
  fovea_answer answer = FOVEA_PROVEN;
  EXPECT_EQ(fovea_supported(problem, &options, &answer, nullptr), FOVEA_OK);
  options.engine = "reference";  // there is no other yet
  fovea_plan plan = nullptr;
  ASSERT_EQ(fovea_plan_create(problem, &options, &plan), FOVEA_OK) << fovea_last_error();
  const Owned<fovea_plan> owned_plan(plan);
  std::size_t bytes = 0;
  ASSERT_EQ(fovea_plan_workspace(plan, nullptr, &bytes), FOVEA_OK);
  alignas(64) std::byte memory[4096];
  ASSERT_LE(bytes, sizeof memory);
  fovea_bindings bindings{};
  bindings.struct_size = sizeof bindings;
  bindings.workspace = memory;
  bindings.workspace_bytes = bytes;
  EXPECT_EQ(fovea_plan_run(plan, &bindings), FOVEA_OK) << fovea_last_error();

  fovea_program program = nullptr;
  ASSERT_EQ(fovea_program_parse("", &program), FOVEA_OK);
  const Owned<fovea_program> owned_program(program);
  fovea_point point{};
  point.struct_size = sizeof point;
  fovea_value value{};
  value.struct_size = sizeof value;
  ASSERT_EQ(fovea_program_evaluate(program, &point, 0, &value), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(value.keep, 1);
  fovea_box box{};
  box.struct_size = sizeof box;
  box.at.struct_size = sizeof box.at;
  fovea_tile_class tile = FOVEA_TILE_MIXED;
  EXPECT_EQ(fovea_program_classify(program, &box, &tile), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(tile, FOVEA_TILE_EMPTY);  // no positions
}

TEST(Structs, AWholeProblemNeedsItsSizesOnly) {
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  config.sizes = {2, 4, 0, 16, 16, 8, 0, 0, 0};
  fovea_problem problem = nullptr;
  ASSERT_EQ(fovea_problem_create(&config, &problem), FOVEA_OK) << fovea_last_error();
  const Owned<fovea_problem> owned(problem);
  fovea_report report = nullptr;
  ASSERT_EQ(fovea_problem_print(problem, &report), FOVEA_OK);
  EXPECT_EQ(text_of(report), "b=2 h=4 sq=16 d=8");
}

}  // namespace
