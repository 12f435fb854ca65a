// Valid Problems drawn at random, with every feature switched on now and then.
#pragma once

#include <random>

#include "attention/problem.h"

namespace fovea::test {

Problem random_problem(std::mt19937_64& random);

}  // namespace fovea::test
