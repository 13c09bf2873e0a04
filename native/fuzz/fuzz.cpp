// Mutated JPEGs through every entry point, in a sanitizer build: fuzz FIRST COUNT SEED FILE…. Beside
// crashes it looks for broken promises: a file that decodes whole must give the same bits by crop as from its pixels,
// the vector resize must equal the portable one, nothing may be written outside a slot, no mutant may take too long.
// Mutant K of the same seed and files is always the same: `fuzz K 1 SEED FILE…` repeats a finding.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include <unistd.h>

#include "podium_native.h"
#include "resize.h"

namespace {

using Bytes = std::vector<uint8_t>;

constexpr double slow_seconds = 20;         // of processor time; the largest box accepted takes 4 with sanitizers on
constexpr unsigned watchdog_seconds = 120;  // of wall time: a loop that never ends
constexpr int64_t max_fuzz_pixels = 4 << 20;
constexpr uint8_t guard = 0xA5;
constexpr size_t guard_bytes = 64;

// SplitMix64: small, and the same on every platform.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
};

volatile sig_atomic_t watched_mutant = 0;

void on_watchdog(int) {
  char text[64];
  const int length = std::snprintf(text, sizeof text, "mutant %d hangs\n", static_cast<int>(watched_mutant));
  if (write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) _exit(4);
  _exit(3);
}

[[noreturn]] void broken(long mutant, const char* promise) {
  std::fprintf(stderr, "mutant %ld: %s\n", mutant, promise);
  std::abort();
}

Bytes read_file(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (!file) {
    std::perror(path);
    std::exit(2);
  }
  Bytes bytes;
  uint8_t chunk[4096];
  for (size_t got; (got = std::fread(chunk, 1, sizeof chunk, file)) > 0;) bytes.insert(bytes.end(), chunk, chunk + got);
  std::fclose(file);
  return bytes;
}

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

// A batch picture with guards around it, for writes by code the sanitizer did not compile.
struct Slot {
  explicit Slot(int out_size)
      : bytes(static_cast<size_t>(out_size) * out_size * 3), memory(bytes + 2 * guard_bytes, guard) {}
  uint8_t* data() { return memory.data() + guard_bytes; }
  bool intact() const {
    return std::all_of(memory.begin(), memory.begin() + guard_bytes, [](uint8_t b) { return b == guard; }) &&
           std::all_of(memory.end() - guard_bytes, memory.end(), [](uint8_t b) { return b == guard; });
  }
  bool operator==(const Slot& other) const { return memory == other.memory; }
  size_t bytes;
  Bytes memory;
};

int32_t random_edge(Random& random, int32_t n) {
  constexpr int32_t edges[] = {0, -1, 1, INT32_MIN, INT32_MAX, 1 << 20, -(1 << 20), 65536};
  return random.next() % 50 == 0 ? edges[random.next() % 8] : static_cast<int32_t>(random.between(-n / 4, n));
}

int32_t try_mutant(long mutant, const Bytes& file, Random& random) {
  int32_t size[2] = {100, 100};
  const int32_t header = podium_jpeg_size(file.data(), file.size(), size);
  const int32_t box[4] = {random_edge(random, size[0]), random_edge(random, size[1]),
                          std::max(1, random_edge(random, size[0])), std::max(1, random_edge(random, size[1]))};
  if (static_cast<int64_t>(box[2]) * box[3] > max_fuzz_pixels && random.next() % 8) return header;
  const uint8_t flip = random.next() % 2;
  const auto out_size = static_cast<int32_t>(random.between(1, 40));

  Slot cropped(out_size);
  const uint8_t* jpeg = file.data();
  const size_t jpeg_bytes = file.size();
  int32_t status = -1;
  podium_batch batch{1,      out_size, 1,   0,     &jpeg,          &jpeg_bytes, nullptr, nullptr, nullptr,
                     box,    &flip,    cropped.data(), &status, nullptr};
  podium_decode_batch(&batch);
  if (!cropped.intact()) broken(mutant, "decode_batch wrote outside its slot");
  if (header != PODIUM_OK && status != header) broken(mutant, "the header's status is not the batch's");
  if (status != PODIUM_OK && std::any_of(cropped.data(), cropped.data() + cropped.bytes, [](uint8_t b) { return b; })) {
    broken(mutant, "a failed slot is not black");
  }
  if (header != PODIUM_OK || static_cast<int64_t>(size[0]) * size[1] > max_fuzz_pixels) return status;

  Bytes pixels(static_cast<size_t>(size[0]) * size[1] * 3);
  const int32_t whole = podium_decode_pixels(jpeg, jpeg_bytes, size, 0, pixels.data());
  if (whole != PODIUM_OK) return whole;
  Slot resized(out_size);
  const uint8_t* image = pixels.data();
  int32_t resized_status = -1;
  batch.images = &image;
  batch.sizes_wh = size;
  batch.out = resized.data();
  batch.statuses = &resized_status;
  podium_resize_batch(&batch);
  if (!resized.intact()) broken(mutant, "resize_batch wrote outside its slot");
  if (resized_status != status) broken(mutant, "crop and pixels give different statuses");
  if (!(resized == cropped)) broken(mutant, "crop and pixels give different bits");

  Slot vector(out_size), portable(out_size);
  podium::ResizeScratch scratch;
  const size_t stride = static_cast<size_t>(size[0]) * 3;
  podium::resize(image, stride, size[0], size[1], flip, out_size, vector.data(), scratch);
  podium::resize_portable(image, stride, size[0], size[1], flip, out_size, portable.data(), scratch);
  if (!(vector == portable)) broken(mutant, "the vector resize differs from the portable one");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: fuzz FIRST COUNT SEED FILE...\n");
    return 2;
  }
  const long first = std::atol(argv[1]), mutants = std::atol(argv[2]);
  const uint64_t seed = std::strtoull(argv[3], nullptr, 10);
  std::vector<Bytes> seeds;
  for (int i = 4; i < argc; ++i) seeds.push_back(read_file(argv[i]));

  std::signal(SIGALRM, on_watchdog);
  long counts[PODIUM_NO_MEMORY + 1] = {};
  double slowest = 0;
  for (long mutant = first; mutant < first + mutants; ++mutant) {
    Random random{seed * 1000003 + static_cast<uint64_t>(mutant)};
    Bytes file = seeds[random.next() % seeds.size()];
    for (int64_t changes = random.between(0, 6); changes > 0; --changes) change_once(file, seeds, random);
    file.shrink_to_fit();  // so that reading one byte too far is seen

    watched_mutant = static_cast<sig_atomic_t>(mutant);
    alarm(watchdog_seconds);
    const std::clock_t begin = std::clock();
    const int32_t status = try_mutant(mutant, file, random);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (seconds > slow_seconds) broken(mutant, "took too long");
    slowest = std::max(slowest, seconds);
    counts[status]++;
  }
  alarm(0);

  std::printf("%ld mutants of %zu files, seed %llu, slowest %.3f s of processor time\n", mutants, seeds.size(),
              static_cast<unsigned long long>(seed), slowest);
  for (int32_t status = 0; status <= PODIUM_NO_MEMORY; ++status) {
    if (counts[status]) std::printf("%8ld  %s\n", counts[status], podium_status_message(status));
  }
  return 0;
}
