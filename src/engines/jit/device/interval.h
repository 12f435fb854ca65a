// What Formula::classify computes with: the rules of src/ir/interval, one by one, so that a tile
// has the same class on the device as on the host; and what loads can read.
#pragma once

#include "captured_range.h"
#include "interval_bool.h"
#include "interval_int.h"
#include "interval_real.h"
