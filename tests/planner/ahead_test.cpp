// Plans compiled ahead: which engines, which blobs, and what is said if there are none.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/store/storing_engine.h"

namespace fovea {
namespace {

using namespace fovea::testing;

std::string unsupported(Planner& planner, const Problem& problem, const PlanRequest& request) {
  try {
    planner.compile_ahead(problem, request);
  } catch (const Unsupported& refusal) {
    return refusal.what();
  }
  return "compiled";
}

class Ahead : public ::testing::Test {
 protected:
  Ahead() { use_own_folder(); }

  FakeEngine plain{"plain"};
  StoringEngine storing;
  Planner planner{{{&plain}, {&storing}}};
  PlanRequest request{find_device("h200"), ""};
};

TEST_F(Ahead, TakesWhatEnginesKeep) {
  const Problem problem = problem_of("h=2 sq=9 d=4 mask=causal");
  const auto first = planner.compile_ahead(problem, request);
  ASSERT_EQ(first.size(), 1U);  // the other one keeps nothing
  EXPECT_EQ(first[0].engine, "fake");
  ASSERT_EQ(first[0].blobs.size(), 1U);
  EXPECT_EQ(first[0].blobs[0].origin, store::Origin::Built);
  EXPECT_EQ(first[0].blobs[0].key.environment, "fake 1.0 sm_90");
  // Again: found, and taken all the same. The cache of plans is not asked.
  const auto second = planner.compile_ahead(problem, request);
  EXPECT_EQ(second.at(0).blobs.at(0).origin, store::Origin::Disk);
  EXPECT_EQ(second[0].blobs[0].blob, first[0].blobs[0].blob);
  EXPECT_EQ(storing.built, 1);
  EXPECT_EQ(planner.cache().statistics().builds, 0U);
}

TEST_F(Ahead, SaysWhyNot) {
  const std::string text = unsupported(planner, problem_of("h=2 sq=9 d=300"), request);
  EXPECT_NE(text.find("no engine can compile this ahead"), std::string::npos) << text;
  EXPECT_EQ(text.find("plain"), std::string::npos) << text;  // it has nothing to say here
  EXPECT_NE(text.find("limit of d_too_large"), std::string::npos) << text;
}

TEST_F(Ahead, AnEngineThatIsNamedIsTheOnlyOne) {
  request.engine = "plain";
  const std::string text = unsupported(planner, problem_of("h=2 sq=9 d=4"), request);
  EXPECT_NE(text.find("its plans live in their process only"), std::string::npos) << text;
  EXPECT_EQ(text.find("fake"), std::string::npos) << text;
  EXPECT_EQ(plain.compiled, 0);
  request.engine = "fake";
  EXPECT_EQ(planner.compile_ahead(problem_of("h=2 sq=9 d=5"), request).size(), 1U);
  request.engine = "fkae";
  EXPECT_THROW(planner.compile_ahead(problem_of("h=2 sq=9 d=5"), request), InvalidArgument);
}

TEST_F(Ahead, WithoutAnEngineThatKeepsPlansItSaysSo) {
  Planner host({{&plain}});
  const std::string text = unsupported(host, problem_of("h=2 sq=9 d=4"), request);
  EXPECT_NE(text.find("this Fovea has no engine that keeps plans in files"), std::string::npos)
      << text;
}

TEST_F(Ahead, AnEngineThatRefusesToCompileIsQuoted) {
  storing.while_compiling = [] { throw Unsupported("the library says no"); };
  const std::string text = unsupported(planner, problem_of("h=2 sq=9 d=6"), request);
  EXPECT_NE(text.find("the library says no"), std::string::npos) << text;
}

TEST_F(Ahead, StoredPlansAreJudgedByTheirEngine) {
  EXPECT_EQ(planner.refuse_stored("fake", "fake 1.0 sm_90"), "");
  EXPECT_EQ(planner.refuse_stored("fake", "fake 2.0 sm_90"),
            "its plans are for fake 2.0 sm_90, here is fake 1.0 sm_90");
  EXPECT_EQ(planner.refuse_stored("plain", "x"), "engine plain keeps no plans in files");
  EXPECT_EQ(planner.refuse_stored("none", "x"), "this Fovea has no engine none");
}

}  // namespace
}  // namespace fovea
