/* The wall clock of the program that this is loaded into is what stands in a file, in
   microseconds: a test sets it, and it stands still until the test does so again. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *now;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("REDLATCH_TEST_CLOCK");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *map = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
  if (map != MAP_FAILED) now = map;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
  if (now && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    t->tv_sec = *now / 1000000;
    t->tv_nsec = *now % 1000000 * 1000;
    return 0;
  }
  return syscall(SYS_clock_gettime, clock, t);
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  struct timespec s;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &s);
  t->tv_sec = s.tv_sec;
  t->tv_usec = s.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *t) {
  struct timespec s;
  clock_gettime(CLOCK_REALTIME, &s);
  if (t) *t = s.tv_sec;
  return s.tv_sec;
}
