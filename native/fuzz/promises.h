// What must hold of every file, however broken.
#pragma once

#include <cstdint>

#include "mutate.h"

namespace podium_fuzz {

// Sends a file, with its own index, a damaged and a forged one, and `other` (an index of some other bytes), through
// every entry point. Returns the status of decoding it; ends the program with the number of the mutant where a promise
// is broken.
int32_t check_promises(long mutant, const Bytes& file, const Bytes& other, Random& random);

// The file's index, empty where it has none.
Bytes index_of(const Bytes& file);

}  // namespace podium_fuzz
