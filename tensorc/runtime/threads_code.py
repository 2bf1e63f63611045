"""The thread pool in LLVM IR; `threads.py` says how it works and fills the capital words in."""

from __future__ import annotations

__all__ = ["POOL", "SLEEP_FUTEX", "SLEEP_POLL"]

SLEEP_FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @sleep(i32 %generation) {
  %word = getelementptr i8, ptr @state, i64 4
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %generation, ptr null)
  ret void
}

define internal void @wake(i32 %count) {
  %word = getelementptr i8, ptr @state, i64 4
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 %count)
  ret void
}
"""

SLEEP_POLL = """
declare i32 @usleep(i32)

define internal void @sleep(i32 %generation) {
  %r = call i32 @usleep(i32 100)
  ret void
}

define internal void @wake(i32 %count) {
  ret void
}
"""

POOL = """
@state = internal global i64 0, align 128       ; generation << 32 | free seats << 16 | at work
@next = internal global i64 0, align 128        ; iterations of the launch claimed so far
@job = internal global [4 x i64] zeroinitializer, align 128   ; task, data, extent, threads
@lock = internal global i32 0, align 128        ; 1 while a launch is on
@sleepers = internal global i32 0, align 128
@launches = internal global i32 0, align 128
@workers = global i64 0, align 8                ; threads of the pool
@limit = global i64 1, align 8                  ; greatest number of threads of a launch
@cores = global i64 1, align 8                  ; greatest number of threads for OpenMP
@openmp = global ptr null, align 8              ; GOMP_parallel of a library that is loaded
@alone = global i32 0, align 8                  ; 1 after a fork: OpenMP's threads stayed behind
@libgomp = internal constant [13 x i8] c"libgomp.so.1\\00"
@gomp_parallel = internal constant [14 x i8] c"GOMP_parallel\\00"

declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare ptr @dlopen(ptr, i32)
declare ptr @dlsym(ptr, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Claim ranges of 0 .. extent until none is left, and run the task on each.
define internal void @share(ptr %task, ptr %data, i64 %extent, i64 %threads, ptr %next, i64 %slot) {
entry:
  %twice = shl i64 %threads, 1
  %first = load atomic i64, ptr %next monotonic, align 8
  br label %look
look:
  %begin = phi i64 [ %first, %entry ], [ %seen, %claim ], [ %after, %run ]
  %left = sub i64 %extent, %begin
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %claim, label %done
claim:
  %part = udiv i64 %left, %twice
  %small = icmp eq i64 %part, 0
  %size = select i1 %small, i64 1, i64 %part
  %end = add i64 %begin, %size
  %pair = cmpxchg ptr %next, i64 %begin, i64 %end monotonic monotonic
  %seen = extractvalue { i64, i1 } %pair, 0
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %look
run:
  call void %task(ptr %data, i64 %begin, i64 %end, i64 %slot)
  %after = load atomic i64, ptr %next monotonic, align 8
  br label %look
done:
  ret void
}

define internal ptr @worker(ptr %unused) {
entry:
  br label %wait
wait:
  %last = phi i32 [ 0, %entry ], [ %last, %pause ], [ %last, %awake ], [ %last, %join ],
                  [ %generation, %work ]
  %spins = phi i32 [ 0, %entry ], [ %spun, %pause ], [ 0, %awake ], [ 0, %join ], [ 0, %work ]
  %now = load atomic i64, ptr @state acquire, align 8
  %high = lshr i64 %now, 32
  %generation = trunc i64 %high to i32
  %low = lshr i64 %now, 16
  %seats = and i64 %low, 65535
  %new = icmp ne i32 %generation, %last
  %free = icmp ne i64 %seats, 0
  %ready = and i1 %new, %free
  br i1 %ready, label %join, label %idle
idle:
  %spun = add i32 %spins, 1
  %tired = icmp ugt i32 %spun, SPINS
  br i1 %tired, label %rest, label %spin
spin:
  %beat = and i32 %spun, 31
  %polite = icmp eq i32 %beat, 0
  br i1 %polite, label %yield, label %pause
yield:
  %y = call i32 @sched_yield()
  br label %pause
pause:
  call void asm sideeffect "PAUSE", "~{memory}"()
  br label %wait
rest:
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  call void @sleep(i32 %generation)
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %awake
awake:
  br label %wait
join:
  %taken = add i64 %now, -65535            ; a seat less, one more at work
  %pair = cmpxchg ptr @state, i64 %now, i64 %taken acq_rel monotonic
  %joined = extractvalue { i64, i1 } %pair, 1
  br i1 %joined, label %work, label %wait
work:
  %task = load ptr, ptr @job
  %data.p = getelementptr i64, ptr @job, i64 1
  %data = load ptr, ptr %data.p
  %extent.p = getelementptr i64, ptr @job, i64 2
  %extent = load i64, ptr %extent.p
  %threads.p = getelementptr i64, ptr @job, i64 3
  %threads = load i64, ptr %threads.p
  call void @share(ptr %task, ptr %data, i64 %extent, i64 %threads, ptr @next, i64 %seats)
  %left = atomicrmw sub ptr @state, i64 1 release
  br label %wait
}

; Start workers until there are `wanted`, with all signals left to the other threads.
define internal void @start(i64 %wanted) noinline {
entry:
  %thread = alloca ptr
  %all = alloca [16 x i64]
  %old = alloca [16 x i64]
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  %m0 = call i32 @pthread_sigmask(i32 SETMASK, ptr %all, ptr %old)
  br label %check
check:
  %have = load i64, ptr @workers
  %enough = icmp sge i64 %have, %wanted
  br i1 %enough, label %done, label %make
make:
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr null)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %done, label %made
made:
  %id = load ptr, ptr %thread
  %d = call i32 @pthread_detach(ptr %id)
  %more = add i64 %have, 1
  store i64 %more, ptr @workers
  br label %check
done:
  %m1 = call i32 @pthread_sigmask(i32 SETMASK, ptr %old, ptr null)
  ret void
}

; OpenMP may have been loaded since.
define internal void @find_openmp() noinline {
entry:
  %forked = load i32, ptr @alone
  %child = icmp ne i32 %forked, 0
  br i1 %child, label %done, label %open
open:
  %library = call ptr @dlopen(ptr @libgomp, i32 5)
  %absent = icmp eq ptr %library, null
  br i1 %absent, label %done, label %found
found:
  %function = call ptr @dlsym(ptr %library, ptr @gomp_parallel)
  store ptr %function, ptr @openmp
  br label %done
done:
  ret void
}

define internal void @openmp_body(ptr %job) {
  %task = load ptr, ptr %job
  %data.p = getelementptr i64, ptr %job, i64 1
  %data = load ptr, ptr %data.p
  %extent.p = getelementptr i64, ptr %job, i64 2
  %extent = load i64, ptr %extent.p
  %threads.p = getelementptr i64, ptr %job, i64 3
  %threads = load i64, ptr %threads.p
  %next = getelementptr i64, ptr %job, i64 4
  %slot.p = getelementptr i64, ptr %job, i64 5
  %slot = atomicrmw add ptr %slot.p, i64 1 monotonic
  call void @share(ptr %task, ptr %data, i64 %extent, i64 %threads, ptr %next, i64 %slot)
  ret void
}

define void @tensorc_parallel_for(ptr %task, ptr %data, i64 %extent, i64 %threads) {
entry:
  %ours = alloca [6 x i64], align 64
  %most = load i64, ptr @limit
  %capped = call i64 @llvm.smin.i64(i64 %threads, i64 %most)
  %n = call i64 @llvm.smin.i64(i64 %capped, i64 %extent)
  %several = icmp sgt i64 %n, 1
  br i1 %several, label %try, label %inline
try:
  %pair = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic
  %locked = extractvalue { i32, i1 } %pair, 1
  br i1 %locked, label %count, label %inline
count:
  %launch = load i32, ptr @launches
  %launch1 = add i32 %launch, 1
  store i32 %launch1, ptr @launches
  %early = load ptr, ptr @openmp
  %known = icmp ne ptr %early, null
  %turn = and i32 %launch, 255
  %notyet = icmp ne i32 %turn, 0
  %skip = or i1 %known, %notyet
  br i1 %skip, label %choose, label %find
find:
  call void @find_openmp()
  br label %choose
choose:
  %gomp = load ptr, ptr @openmp
  %use = icmp ne ptr %gomp, null
  br i1 %use, label %theirs, label %own

theirs:                      ; OpenMP's threads spin: more of them than cores cost milliseconds
  %cores.now = load i64, ptr @cores
  %team = call i64 @llvm.smin.i64(i64 %n, i64 %cores.now)
  store ptr %task, ptr %ours
  %od = getelementptr i64, ptr %ours, i64 1
  store ptr %data, ptr %od
  %oe = getelementptr i64, ptr %ours, i64 2
  store i64 %extent, ptr %oe
  %ot = getelementptr i64, ptr %ours, i64 3
  store i64 %team, ptr %ot
  %on = getelementptr i64, ptr %ours, i64 4
  store i64 0, ptr %on
  %os = getelementptr i64, ptr %ours, i64 5
  store i64 0, ptr %os
  %n32 = trunc i64 %team to i32
  call void %gomp(ptr @openmp_body, ptr %ours, i32 %n32, i32 0)
  store atomic i32 0, ptr @lock release, align 4
  ret void

own:
  %have = load i64, ptr @workers
  %need = sub i64 %n, 1
  %few = icmp slt i64 %have, %need
  br i1 %few, label %grow, label %open
grow:
  call void @start(i64 %need)
  br label %open
open:
  %now = load i64, ptr @workers
  %seats = call i64 @llvm.smin.i64(i64 %need, i64 %now)
  %none = icmp eq i64 %seats, 0
  br i1 %none, label %unlock, label %launch.it
launch.it:
  store ptr %task, ptr @job
  %jd = getelementptr i64, ptr @job, i64 1
  store ptr %data, ptr %jd
  %je = getelementptr i64, ptr @job, i64 2
  store i64 %extent, ptr %je
  %jt = getelementptr i64, ptr @job, i64 3
  store i64 %n, ptr %jt
  store atomic i64 0, ptr @next monotonic, align 8
  %before = load atomic i64, ptr @state monotonic, align 8
  %generation = lshr i64 %before, 32
  %generation1 = add i64 %generation, 1
  %gbits = shl i64 %generation1, 32
  %sbits = shl i64 %seats, 16
  %state1 = or i64 %gbits, %sbits
  %x = atomicrmw xchg ptr @state, i64 %state1 seq_cst
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %someone = icmp sgt i32 %asleep, 0
  br i1 %someone, label %rouse, label %part
rouse:
  %count32 = trunc i64 %seats to i32
  call void @wake(i32 %count32)
  br label %part
part:
  call void @share(ptr %task, ptr %data, i64 %extent, i64 %n, ptr @next, i64 0)
  %closed = atomicrmw and ptr @state, i64 -4294901761 acq_rel   ; no seats any more
  br label %wait
wait:
  %turns = phi i32 [ 0, %part ], [ %turns1, %again ]
  %seen = load atomic i64, ptr @state acquire, align 8
  %working = and i64 %seen, 65535
  %quiet = icmp eq i64 %working, 0
  br i1 %quiet, label %unlock2, label %linger
linger:
  %turns1 = add i32 %turns, 1
  %long = icmp ugt i32 %turns1, 300
  br i1 %long, label %give, label %hold
give:
  %y = call i32 @sched_yield()
  br label %again
hold:
  call void asm sideeffect "PAUSE", "~{memory}"()
  br label %again
again:
  br label %wait
unlock2:
  store atomic i32 0, ptr @lock release, align 4
  ret void

unlock:
  store atomic i32 0, ptr @lock release, align 4
  br label %inline
inline:
  %empty = icmp sle i64 %extent, 0
  br i1 %empty, label %done, label %alone.run
alone.run:
  call void %task(ptr %data, i64 0, i64 %extent, i64 0)
  br label %done
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)

; In the child of a fork: no thread but this one is left.
define void @reset() {
  store i64 0, ptr @state
  store i64 0, ptr @workers
  store i32 0, ptr @sleepers
  store i32 1, ptr @alone
  store ptr null, ptr @openmp
  store atomic i32 0, ptr @lock seq_cst, align 4
  ret void
}
"""
