#include "mutate.h"

#include <algorithm>

namespace podium_fuzz {
namespace {

// Half of all changes fall on the headers, which are short and where the dangerous numbers are.
size_t place(const Bytes& file, Random& random) {
  const auto end = static_cast<int64_t>(file.size()) - 1;
  return static_cast<size_t>(random.between(0, random.next() % 2 ? std::min<int64_t>(end, 700) : end));
}

void change_once(Bytes& file, const std::vector<Bytes>& seeds, Random& random) {
  if (file.empty()) return;
  const size_t at = place(file, random);
  const auto offset = static_cast<Bytes::difference_type>(at);
  const auto run = static_cast<Bytes::difference_type>(std::min<size_t>(file.size() - at, random.between(1, 64)));
  switch (random.next() % 9) {
    case 0: file[at] ^= static_cast<uint8_t>(1u << random.next() % 8); break;
    case 1: file[at] = static_cast<uint8_t>(random.next()); break;
    case 2: {
      constexpr uint8_t edges[] = {0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF};
      file[at] = edges[random.next() % sizeof edges];
      break;
    }
    case 3: file.erase(file.begin() + offset, file.begin() + offset + run); break;
    case 4: {
      const Bytes copy(file.begin() + offset, file.begin() + offset + run);
      file.insert(file.begin() + static_cast<Bytes::difference_type>(place(file, random)), copy.begin(), copy.end());
      break;
    }
    case 5: {  // a marker, at times with a length
      const auto code = static_cast<uint8_t>(random.between(0xC0, 0xFE)), length = static_cast<uint8_t>(random.next());
      const uint8_t marker[] = {0xFF, code, 0, length};
      file.insert(file.begin() + offset, marker, marker + (random.next() % 2 ? 2 : 4));
      break;
    }
    case 6: {  // a stretch of another file over this one
      const Bytes& other = seeds[random.next() % seeds.size()];
      const size_t from = place(other, random);
      const auto most = static_cast<size_t>(random.between(1, 400));
      const size_t length = std::min({most, other.size() - from, file.size() - at});
      std::copy_n(other.begin() + static_cast<Bytes::difference_type>(from), length, file.begin() + offset);
      break;
    }
    case 7: {  // another size in the frame header
      const uint8_t frame[] = {0xFF, static_cast<uint8_t>(0xC0 + random.next() % 3)};
      const auto found = std::search(file.begin(), file.end(), frame, frame + 2);
      if (file.end() - found < 9) break;
      for (int i = 5; i < 9; ++i) found[i] = static_cast<uint8_t>(random.next() >> random.next() % 8);
      break;
    }
    default:
      // Cutting the end alone is always caught by the missing end marker; put one back to get further in.
      if (random.next() % 4 == 0) {
        file.resize(at);
        file.insert(file.end(), {0xFF, 0xD9});
      } else {
        file[at] = static_cast<uint8_t>(file[at] + random.between(-3, 3));
      }
  }
}

}  // namespace

Bytes mutated(Bytes file, const std::vector<Bytes>& seeds, Random& random) {
  for (int64_t changes = random.between(0, 6); changes > 0; --changes) change_once(file, seeds, random);
  file.shrink_to_fit();  // so that reading one byte too far is seen
  return file;
}

}  // namespace podium_fuzz
