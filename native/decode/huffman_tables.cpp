#include <algorithm>

#include "huffman.h"
#include "huffman_entry.h"

namespace podium {
namespace {

// Walks a table's codes in order: visit(symbol, code, length). False for a table that libjpeg refuses: more codes of a
// length than there are, or one of ones alone.
template <class Visit>
bool walk_codes(const HuffmanSpec& spec, LongCodes& codes, Visit visit) {
  codes.symbols = spec.symbols;
  uint32_t code = 0;
  int symbol = 0;
  bool begun = false;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    codes.offset[length] = symbol - static_cast<int32_t>(code);
    for (int i = 0; i < spec.counts[length - 1]; ++i) {
      if (code + 1 >= 1u << length) return false;
      visit(spec.symbols[symbol++], code++, length);
      begun = true;
    }
    codes.limit[length] = code << (16 - length);
  }
  return begun;
}

bool build_ac(const HuffmanSpec& spec, AcTable& table) {
  std::fill_n(table.entry, 1 << ac_look, entry(0, closer_look, code_unknown));
  return walk_codes(spec, table.codes, [&](int symbol, uint32_t code, int length) {
    if (length > ac_look) return;
    const int run = symbol >> 4, size = symbol & 15, free = ac_look - length;
    uint32_t* at = table.entry + (code << free);
    if (size == 0) {
      std::fill_n(at, 1 << free, run == 15 ? entry(length, 16, 0) : entry(length, end_of_block, 0));
    } else if (size > free) {
      std::fill_n(at, 1 << free, entry(length, closer_look, symbol));
    } else {
      for (int value = 0; value < 1 << size; ++value, at += 1 << (free - size)) {
        const int extended = value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
        std::fill_n(at, 1 << (free - size), entry(length + size, run + 1, extended));
      }
    }
  });
}

bool build_dc(const HuffmanSpec& spec, DcTable& table) {
  std::fill_n(table.code, 1 << dc_look, DcTable::Code{0, 0});
  bool sound = true;
  const bool walked = walk_codes(spec, table.codes, [&](int symbol, uint32_t code, int length) {
    sound = sound && symbol <= 15;
    if (length > dc_look) return;
    const int free = dc_look - length;
    const DcTable::Code found{static_cast<uint8_t>(length), static_cast<uint8_t>(symbol)};
    std::fill_n(table.code + (code << free), 1 << free, found);
  });
  return walked && sound;
}

// The first component with the same table.
template <class Spec>
int first_alike(const Header& header, int component, Spec spec) {
  int c = 0;
  while (spec(header.component[c]).counts != spec(header.component[component]).counts) ++c;
  return c;
}

}  // namespace

bool build_tables(const Header& header, HuffmanTables& tables) {
  for (int c = 0; c < header.components; ++c) {
    tables.ac_of[c] = first_alike(header, c, [](const Component& one) { return one.ac; });
    tables.dc_of[c] = first_alike(header, c, [](const Component& one) { return one.dc; });
    if (tables.ac_of[c] == c && !build_ac(header.component[c].ac, tables.ac[c])) return false;
    if (tables.dc_of[c] == c && !build_dc(header.component[c].dc, tables.dc[c])) return false;
  }
  return true;
}

}  // namespace podium
