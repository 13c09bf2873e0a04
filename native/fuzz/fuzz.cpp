// Mutated JPEGs and indexes through every entry point, in a sanitizer build: fuzz FIRST COUNT SEED FILE…. Beside
// crashes it looks for broken promises (promises.h), libjpeg being the reference. Mutant K of the same seed and files
// is always the same: `fuzz K 1 SEED FILE…` repeats a finding.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <unistd.h>

#include "podium_native.h"
#include "promises.h"

using namespace podium_fuzz;

namespace {

constexpr unsigned watchdog_seconds = 120;  // of wall time: a loop that never ends

volatile sig_atomic_t watched_mutant = 0;

void on_watchdog(int) {
  char text[64];
  const int length = std::snprintf(text, sizeof text, "mutant %d hangs\n", static_cast<int>(watched_mutant));
  if (write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) _exit(4);
  _exit(3);
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

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: fuzz FIRST COUNT SEED FILE...\n");
    return 2;
  }
  const long first = std::atol(argv[1]), mutants = std::atol(argv[2]);
  const uint64_t seed = std::strtoull(argv[3], nullptr, 10);
  std::vector<Bytes> seeds, indexes;
  for (int i = 4; i < argc; ++i) seeds.push_back(read_file(argv[i]));
  for (const Bytes& file : seeds) indexes.push_back(index_of(file));

  std::signal(SIGALRM, on_watchdog);
  long counts[PODIUM_NO_MEMORY + 1] = {};
  double slowest = 0;
  for (long mutant = first; mutant < first + mutants; ++mutant) {
    Random random{seed * 1000003 + static_cast<uint64_t>(mutant)};
    const size_t from = random.next() % seeds.size();
    const Bytes file = mutated(seeds[from], seeds, random);

    watched_mutant = static_cast<sig_atomic_t>(mutant);
    alarm(watchdog_seconds);
    const std::clock_t begin = std::clock();
    counts[check_promises(mutant, file, indexes[from], random)]++;
    slowest = std::max(slowest, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  alarm(0);

  std::printf("%ld mutants of %zu files, seed %llu, slowest %.3f s of processor time\n", mutants, seeds.size(),
              static_cast<unsigned long long>(seed), slowest);
  for (int32_t status = 0; status <= PODIUM_NO_MEMORY; ++status) {
    if (counts[status]) std::printf("%8ld  %s\n", counts[status], podium_status_message(status));
  }
  return 0;
}
