// One counting semaphore, one lock and one bounded queue over each means that Linux programs use to wait for
// each other, chosen by -DSYNC_name. A profiler that watches a list of library functions sees some of them only.
#ifndef WHITHER_WORKLOADS_CAUSAL_SYNC_HPP
#define WHITHER_WORKLOADS_CAUSAL_SYNC_HPP

#include "causal.h"
#include <sys/mman.h>
#include <unistd.h>

#if defined(SYNC_atomicwait)
#include <atomic>
struct Semaphore {
    std::atomic<int> n;
    explicit Semaphore(int start) : n(start) {}
    void take()
    {
        for (int seen = n.load();;) {
            if (seen == 0) {
                n.wait(0);
                seen = n.load();
            } else if (n.compare_exchange_weak(seen, seen - 1)) {
                return;
            }
        }
    }
    void give()
    {
        n.fetch_add(1);
        n.notify_one();
    }
};
#elif defined(SYNC_cppsem)
#include <semaphore>
struct Semaphore {
    std::counting_semaphore<64> inner;
    explicit Semaphore(int start) : inner(start) {}
    void take() { inner.acquire(); }
    void give() { inner.release(); }
};
#elif defined(SYNC_sem)
#include <semaphore.h>
struct Semaphore {
    sem_t inner;
    explicit Semaphore(int start) { sem_init(&inner, 1, static_cast<unsigned>(start)); }
    void take()
    {
        while (sem_wait(&inner) != 0)
            MUST(errno == EINTR);
    }
    void give() { sem_post(&inner); }
};
#elif defined(SYNC_pipe) || defined(SYNC_socket)
#include <sys/socket.h>
// As many bytes are under way as the semaphore counts.
struct Semaphore {
    int ends[2];
    explicit Semaphore(int start)
    {
#ifdef SYNC_pipe
        MUST(pipe(ends) == 0);
#else
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
#endif
        while (start-- > 0)
            give();
    }
    void take()
    {
        char byte;
        while (read(ends[0], &byte, 1) != 1)
            MUST(errno == EINTR);
    }
    void give()
    {
        while (write(ends[1], "", 1) != 1)
            MUST(errno == EINTR);
    }
};
#elif defined(SYNC_eventfd)
#include <sys/eventfd.h>
struct Semaphore {
    int file;
    explicit Semaphore(int start) : file(eventfd(static_cast<unsigned>(start), EFD_SEMAPHORE)) { MUST(file >= 0); }
    void take()
    {
        eventfd_t one;
        while (eventfd_read(file, &one) != 0)
            MUST(errno == EINTR);
    }
    void give() { MUST(eventfd_write(file, 1) == 0); }
};
#elif defined(SYNC_spinfutex)
#include <linux/futex.h>
#include <sys/syscall.h>
// Spins a little, then asks the kernel: what adaptive locks do, without any library function.
struct Semaphore {
    uint32_t n, sleepers = 0;
    explicit Semaphore(int start) : n(static_cast<uint32_t>(start)) {}
    bool try_take()
    {
        uint32_t seen = __atomic_load_n(&n, __ATOMIC_SEQ_CST);
        return seen != 0 && __atomic_compare_exchange_n(&n, &seen, seen - 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    void take()
    {
        for (int i = 0; i < 200; i++) {
            if (try_take())
                return;
            __builtin_ia32_pause();
        }
        __atomic_fetch_add(&sleepers, 1, __ATOMIC_SEQ_CST);
        while (!try_take())
            if (__atomic_load_n(&n, __ATOMIC_SEQ_CST) == 0)
                syscall(SYS_futex, &n, FUTEX_WAIT, 0, nullptr, nullptr, 0);
        __atomic_fetch_sub(&sleepers, 1, __ATOMIC_SEQ_CST);
    }
    void give()
    {
        __atomic_fetch_add(&n, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST))
            syscall(SYS_futex, &n, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    }
};
#elif defined(SYNC_c11)
#include <threads.h>
#elif !defined(SYNC_mutex)
#define SYNC_mutex
#endif

enum { ROOM = 16 };

#if defined(SYNC_mutex) || defined(SYNC_c11)
#ifdef SYNC_c11
struct Lock {
    mtx_t inner;
    Lock() { mtx_init(&inner, mtx_plain); }
    void lock() { mtx_lock(&inner); }
    void unlock() { mtx_unlock(&inner); }
};
struct Condition {
    cnd_t inner;
    Condition() { cnd_init(&inner); }
    void wait(Lock &lock) { cnd_wait(&inner, &lock.inner); }
    void signal() { cnd_signal(&inner); }
};
#else
struct Lock {
    pthread_mutex_t inner = PTHREAD_MUTEX_INITIALIZER;
    void lock() { pthread_mutex_lock(&inner); }
    void unlock() { pthread_mutex_unlock(&inner); }
};
struct Condition {
    pthread_cond_t inner = PTHREAD_COND_INITIALIZER;
    void wait(Lock &lock) { pthread_cond_wait(&inner, &lock.inner); }
    void signal() { pthread_cond_signal(&inner); }
};
#endif
// The textbook queue: one lock, two conditions.
struct Queue {
    Lock lock;
    Condition not_full, not_empty;
    uint64_t entries[ROOM], head = 0, tail = 0;
    void put(uint64_t entry)
    {
        lock.lock();
        while (head - tail == ROOM)
            not_full.wait(lock);
        entries[head++ % ROOM] = entry;
        not_empty.signal();
        lock.unlock();
    }
    uint64_t get()
    {
        lock.lock();
        while (head == tail)
            not_empty.wait(lock);
        uint64_t entry = entries[tail++ % ROOM];
        not_full.signal();
        lock.unlock();
        return entry;
    }
};
#else
struct Lock {
    Semaphore free{1};
    void lock() { free.take(); }
    void unlock() { free.give(); }
};
// One producer, one consumer; entries are handed over by the semaphores.
struct Queue {
    Semaphore room{ROOM}, filled{0};
    uint64_t entries[ROOM], head = 0, tail = 0;
    void put(uint64_t entry)
    {
        room.take();
        entries[head++ % ROOM] = entry;
        filled.give();
    }
    uint64_t get()
    {
        filled.take();
        uint64_t entry = entries[tail++ % ROOM];
        room.give();
        return entry;
    }
};
#endif

#endif
