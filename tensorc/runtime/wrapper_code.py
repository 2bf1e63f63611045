"""The parts of the call wrapper that do not look at arguments, in LLVM IR; `wrapper.py` fills the layout in.

`$name` is a number of the layout, `%x = field T %base, n` loads the 64-bit word n from a base,
`%x = at T %base, n` loads from n bytes on. `$GENERAL` and `$PLAIN` are true and false in the module
that knows every kind of call, and the other way round in the small one.
"""

from __future__ import annotations

__all__ = ["BLOCKS", "IMPORTED", "PYTHON", "RUN"]

PYTHON = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_NoMemory()
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyObject_Call(ptr, ptr, ptr)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
@_Py_NoneStruct = external global i8
@_Py_FalseStruct = external global i8
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

BLOCKS = """
@blocks = internal global [16 x ptr] zeroinitializer, align 128   ; workspaces not in use

declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)

; A block of at least `size` bytes, aligned to 64; its size stands 64 bytes before it. Null: no
; memory.
define internal ptr @take(i64 %size) noinline {
entry:
  %fresh = alloca ptr
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %slot = getelementptr ptr, ptr @blocks, i64 %i
  %seen = load atomic ptr, ptr %slot monotonic, align 8
  %empty = icmp eq ptr %seen, null
  br i1 %empty, label %next, label %grab
grab:
  %bits = atomicrmw xchg ptr %slot, ptr null acquire
  %lost = icmp eq ptr %bits, null
  br i1 %lost, label %next, label %measure
measure:
  %have = load i64, ptr %bits
  %fits = icmp uge i64 %have, %size
  br i1 %fits, label %found, label %drop
drop:
  call void @free(ptr %bits)
  br label %make
next:
  %i1 = add i64 %i, 1
  %last = icmp eq i64 %i1, 16
  br i1 %last, label %make, label %look
make:
  %whole = add i64 %size, 64
  %bad = call i32 @posix_memalign(ptr %fresh, i64 64, i64 %whole)
  %failed = icmp ne i32 %bad, 0
  br i1 %failed, label %none, label %made
made:
  %new = load ptr, ptr %fresh
  store i64 %size, ptr %new
  br label %found
found:
  %block = phi ptr [ %bits, %measure ], [ %new, %made ]
  %start = getelementptr i8, ptr %block, i64 64
  ret ptr %start
none:
  ret ptr null
}

define internal void @give(ptr %start) noinline {
entry:
  %block = getelementptr i8, ptr %start, i64 -64
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %slot = getelementptr ptr, ptr @blocks, i64 %i
  %pair = cmpxchg ptr %slot, ptr null, ptr %block release monotonic
  %kept = extractvalue { ptr, i1 } %pair, 1
  br i1 %kept, label %done, label %next
next:
  %i1 = add i64 %i, 1
  %last = icmp eq i64 %i1, 16
  br i1 %last, label %full, label %look
full:
  call void @free(ptr %block)
  br label %done
done:
  ret void
}
"""

RUN = """
; Run the kernel with a workspace; scalars hold the number of threads after the named ones, and
; buffers have room for those that the table binds after the arguments'. -1: no memory.
define i32 @invoke(ptr %table, ptr %buffers, ptr %scalars, ptr %error) {
entry:
  %sizes = alloca [$MOST_SIZES x i64], align 16
  %function = field ptr %table, $H_function
  %count = field i64 %table, $H_scalars
  %threads = field i64 %scalars, %count
  %fixed0 = field i64 %table, $H_workspace
  %each0 = field i64 %table, $H_thread_workspace
  %measure = field ptr %table, $H_sizes
  %nbound = field i64 %table, $H_bound
  %none.bound = icmp eq i64 %nbound, 0
  br i1 %none.bound, label %bound, label %bind
bind:
  %arguments = field i64 %table, $H_params
  %rest = getelementptr ptr, ptr %buffers, i64 %arguments
  %addresses = field ptr %table, $H_bound_addresses
  br label %bind.one
bind.one:
  %n = phi i64 [ 0, %bind ], [ %n1, %bind.one ]
  %address = field ptr %addresses, %n
  %place = getelementptr ptr, ptr %rest, i64 %n
  store ptr %address, ptr %place
  %n1 = add i64 %n, 1
  %bind.more = icmp ult i64 %n1, %nbound
  br i1 %bind.more, label %bind.one, label %bound
bound:
  %constant = icmp eq ptr %measure, null
  br i1 %constant, label %sum, label %ask
ask:                                              ; they depend on the scalars
  call void %measure(ptr %scalars, ptr %sizes)
  %fixed1 = field i64 %sizes, 0
  %each1 = field i64 %sizes, 1
  br label %sum
sum:
  %fixed = phi i64 [ %fixed0, %bound ], [ %fixed1, %ask ]
  %each = phi i64 [ %each0, %bound ], [ %each1, %ask ]
  %part = mul i64 %each, %threads
  %size = add i64 %fixed, %part
  %any = icmp ne i64 %size, 0
  br i1 %any, label %with, label %without
without:
  %r0 = call i32 %function(ptr %buffers, ptr %scalars, ptr null, ptr %error)
  ret i32 %r0
with:
  %block = call ptr @take(i64 %size)
  %none = icmp eq ptr %block, null
  br i1 %none, label %fail, label %run
run:
  %r1 = call i32 %function(ptr %buffers, ptr %scalars, ptr %block, ptr %error)
  call void @give(ptr %block)
  ret i32 %r1
fail:
  ret i32 -1
}

; Call the table's Python function with the same arguments, the kernel before them.
define ptr @slow(ptr %self, ptr %args, i64 %nargs, ptr %names) noinline optnone {
entry:
  %table = at ptr %self, $TABLE
  %python = field ptr %table, $H_slow
  %room = add i64 %nargs, 1
  %tuple = call ptr @PyTuple_New(i64 %room)
  %no.tuple = icmp eq ptr %tuple, null
  br i1 %no.tuple, label %fail, label %first
first:
  call void @Py_IncRef(ptr %self)
  %s0 = call i32 @PyTuple_SetItem(ptr %tuple, i64 0, ptr %self)
  br label %check
check:
  %i = phi i64 [ 0, %first ], [ %i1, %move ]
  %more = icmp slt i64 %i, %nargs
  br i1 %more, label %move, label %moved
move:
  %object = field ptr %args, %i
  %i1 = add i64 %i, 1
  call void @Py_IncRef(ptr %object)
  %s1 = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i1, ptr %object)
  br label %check
moved:
  %named = icmp ne ptr %names, null
  br i1 %named, label %dict.make, label %go
dict.make:
  %count = at i64 %names, 16
  %made = call ptr @PyDict_New()
  %no.dict = icmp eq ptr %made, null
  br i1 %no.dict, label %drop, label %dict.check
dict.check:
  %k = phi i64 [ 0, %dict.make ], [ %k1, %dict.one ]
  %bad = phi i32 [ 0, %dict.make ], [ %bad1, %dict.one ]
  %dict.more = icmp slt i64 %k, %count
  %fine = icmp eq i32 %bad, 0
  %next = and i1 %dict.more, %fine
  br i1 %next, label %dict.one, label %go
dict.one:
  %names.base = getelementptr i8, ptr %names, i64 24
  %name = field ptr %names.base, %k
  %at = add i64 %nargs, %k
  %value = field ptr %args, %at
  %bad1 = call i32 @PyDict_SetItem(ptr %made, ptr %name, ptr %value)
  %k1 = add i64 %k, 1
  br label %dict.check
go:
  %dict = phi ptr [ null, %moved ], [ %made, %dict.check ]
  %result = call ptr @PyObject_Call(ptr %python, ptr %tuple, ptr %dict)
  %had.dict = icmp ne ptr %dict, null
  br i1 %had.dict, label %dict.drop, label %drop
dict.drop:
  call void @Py_DecRef(ptr %dict)
  br label %drop
drop:
  %out = phi ptr [ null, %dict.make ], [ %result, %go ], [ %result, %dict.drop ]
  call void @Py_DecRef(ptr %tuple)
  ret ptr %out
fail:
  ret ptr null
}

; Raise what a failed check left in the error record, or MemoryError; always null.
define ptr @raise(ptr %self, ptr %table, i32 %code, ptr %error) noinline optnone {
entry:
  %memory = icmp eq i32 %code, -1
  br i1 %memory, label %nomemory, label %check
nomemory:
  %n = call ptr @PyErr_NoMemory()
  ret ptr null
check:
  %python = field ptr %table, $H_fail
  %address = ptrtoint ptr %error to i64
  %number = call ptr @PyLong_FromLongLong(i64 %address)
  %result = call ptr (ptr, ...)
      @PyObject_CallFunctionObjArgs(ptr %python, ptr %self, ptr %number, ptr null)
  call void @Py_DecRef(ptr %number)
  ret ptr null
}
"""

# What the module of `RUN` gives to another one.
IMPORTED = """
declare i32 @invoke(ptr, ptr, ptr, ptr)
declare ptr @slow(ptr, ptr, i64, ptr)
declare ptr @raise(ptr, ptr, i32, ptr)
"""
