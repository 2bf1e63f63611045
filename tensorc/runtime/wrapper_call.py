"""The vectorcall function of kernels, in LLVM IR as `wrapper_code.py` says.

It goes through the parameters, compares each argument with the table, and notes its memory; makes the
outputs if they are not given; and runs the kernel.
"""

from __future__ import annotations

__all__ = ["CALL"]

CALL = """
define ptr @call(ptr %self, ptr %args, i64 %nargsf, ptr %names) {
entry:
  %buffers = alloca [$MOST_PARAMS x ptr], align 64
  %begins = alloca [$MOST_PARAMS x i64], align 64
  %ends = alloca [$MOST_PARAMS x i64], align 64
  %outs = alloca [$MOST_PARAMS x ptr], align 64        ; records of outputs to be made, then those
  %dl = alloca [6 x i64], align 16
  %isout = alloca [$MOST_PARAMS x i8]
  %scalars = alloca [$MOST_SCALARS x i64], align 64
  %error = alloca [$ERROR_WORDS x i64], align 16
  %sizes = alloca [$MOST_SIZES x i64], align 64
  %pending = alloca [$MOST_PARAMS x [2 x i64]], align 64      ; extents to be compared with derived ones
  %npending = alloca i64
  store i64 0, ptr %npending
  %nargs = and i64 %nargsf, 9223372036854775807
  %table = at ptr %self, $TABLE
  %flags = field i64 %table, $H_flags
  %slowbit = and i64 %flags, 2
  %only.slow = icmp ne i64 %slowbit, 0
  br i1 %only.slow, label %slow, label %names.check

names.check:
  %most = field i64 %table, $H_threads
  %named = icmp ne ptr %names, null
  br i1 %named, label %names.count, label %arity
names.count:
  %nnames = at i64 %names, 16
  %single = icmp eq i64 %nnames, 1
  br i1 %single, label %names.which, label %names.none
names.none:
  %nonames = icmp eq i64 %nnames, 0
  br i1 %nonames, label %arity, label %slow
names.which:
  %name = at ptr %names, 24
  %keyword = field ptr %table, $H_keyword
  %is.threads = icmp eq ptr %name, %keyword
  br i1 %is.threads, label %names.value, label %slow
names.value:
  %value.p = getelementptr ptr, ptr %args, i64 %nargs
  %value = load ptr, ptr %value.p
  %asked = call i64 @PyLong_AsLongLong(ptr %value)
  %positive = icmp sgt i64 %asked, 0
  br i1 %positive, label %names.cap, label %names.bad
names.bad:
  call void @PyErr_Clear()
  br label %slow
names.cap:
  %capped = call i64 @llvm.smin.i64(i64 %asked, i64 %most)
  br label %arity

arity:
  %threads = phi i64 [ %most, %names.check ], [ %most, %names.none ], [ %capped, %names.cap ]
  %nparams = field i64 %table, $H_params
  %ninputs = field i64 %table, $H_inputs
  %nscalars = field i64 %table, $H_scalars
  %all = icmp eq i64 %nargs, %nparams
  %inputs = icmp eq i64 %nargs, %ninputs
  %fits = or i1 %all, %inputs
  br i1 %fits, label %begin, label %slow
begin:
  %making = xor i1 %all, true
  %array = field ptr %table, $H_array
  %threads.p = getelementptr i64, ptr %scalars, i64 %nscalars
  store i64 %threads, ptr %threads.p
  br label %unset
unset:
  %u = phi i64 [ 0, %begin ], [ %u1, %unset.one ]
  %unset.more = icmp slt i64 %u, %nscalars
  br i1 %unset.more, label %unset.one, label %start
unset.one:
  %unset.p = getelementptr i64, ptr %scalars, i64 %u
  store i64 -1, ptr %unset.p
  %u1 = add i64 %u, 1
  br label %unset
start:
  %first = getelementptr i8, ptr %table, i64 $HEADER_BYTES
  br label %param

param:
  %p = phi i64 [ 0, %start ], [ %p1, %param.next ]
  %a = phi i64 [ 0, %start ], [ %a.next, %param.next ]
  %tensors = phi i64 [ 0, %start ], [ %tensors1, %param.next ]
  %record = phi ptr [ %first, %start ], [ %record.next, %param.next ]
  %param.more = icmp slt i64 %p, %nparams
  br i1 %param.more, label %param.one, label %measure
param.one:
  %rank = field i64 %record, $R_rank
  %output = field i64 %record, $R_output
  %strided = field i64 %record, $R_strided
  %extents = getelementptr i64, ptr %record, i64 $RECORD_WORDS
  %strides = getelementptr i64, ptr %extents, i64 %rank
  %has.strides = icmp ne i64 %strided, 0
  %is.strided = and i1 %has.strides, $GENERAL
  %tail = select i1 %is.strided, i64 %rank, i64 0
  %record.next = getelementptr i64, ptr %strides, i64 %tail
  %isout.p = getelementptr i8, ptr %isout, i64 %p
  %output8 = trunc i64 %output to i8
  store i8 %output8, ptr %isout.p
  %outs.p = getelementptr ptr, ptr %outs, i64 %p
  store ptr null, ptr %outs.p
  %is.output = icmp ne i64 %output, 0
  %make = and i1 %is.output, %making
  br i1 %make, label %param.make, label %check
param.make:                                       ; made once everything else is known to fit
  %maker = field ptr %record, $R_make
  %no.maker = icmp eq ptr %maker, null
  br i1 %no.maker, label %slow, label %param.later
param.later:
  store ptr %record, ptr %outs.p
  %later.b = getelementptr i64, ptr %begins, i64 %p
  store i64 0, ptr %later.b
  %later.e = getelementptr i64, ptr %ends, i64 %p
  store i64 0, ptr %later.e
  br label %param.next
check:
  %arg.p = getelementptr ptr, ptr %args, i64 %a
  %object = load ptr, ptr %arg.p
  %type = at ptr %object, $A_type
  %is.array = icmp eq ptr %type, %array
  br i1 %is.array, label %check.fields, label %check.tensor
check.tensor:
  %tensor.type = field ptr %table, $H_tensor
  %is.tensor = icmp eq ptr %type, %tensor.type
  %not.strided = xor i1 %is.strided, true
  %fit.tensor = and i1 %is.tensor, %not.strided
  %try.tensor = and i1 %fit.tensor, $GENERAL
  br i1 %try.tensor, label %tensor, label %slow
tensor:
  %tensor.fits = call i1 @tensor(ptr %table, ptr %record, ptr %object, ptr %dl)
  br i1 %tensor.fits, label %tensor.dims, label %slow
tensor.dims:
  %t.data = at i64 %dl, $T_data
  %t.dims = at ptr %dl, $T_dims
  br label %dims
check.fields:
  %descr = at ptr %object, $A_descr
  %descr.want = field ptr %record, $R_descr
  %same.descr = icmp eq ptr %descr, %descr.want
  %nd32 = at i32 %object, $A_nd
  %nd = zext i32 %nd32 to i64
  %same.rank = icmp eq i64 %nd, %rank
  %flags32 = at i32 %object, $A_flags
  %have.flags = zext i32 %flags32 to i64
  %want.flags = field i64 %record, $R_flags
  %both.flags = and i64 %have.flags, %want.flags
  %good.flags = icmp eq i64 %both.flags, %want.flags
  %a.data = at i64 %object, $A_data
  %mask = field i64 %record, $R_align
  %off = and i64 %a.data, %mask
  %aligned = icmp eq i64 %off, 0
  %ok0 = and i1 %same.descr, %same.rank
  %ok1 = and i1 %good.flags, %aligned
  %ok = and i1 %ok0, %ok1
  br i1 %ok, label %check.dims, label %slow
check.dims:
  %a.dims = at ptr %object, $A_dims
  %a.strides = at ptr %object, $A_strides
  br label %dims
dims:
  %data = phi i64 [ %a.data, %check.dims ], [ %t.data, %tensor.dims ]
  %have.dims = phi ptr [ %a.dims, %check.dims ], [ %t.dims, %tensor.dims ]
  %have.strides = phi ptr [ %a.strides, %check.dims ], [ null, %tensor.dims ]
  %one.tensor = phi i64 [ 0, %check.dims ], [ 1, %tensor.dims ]
  %itemsize = field i64 %record, $R_itemsize
  br label %dim
dim:
  %d = phi i64 [ 0, %dims ], [ %d1, %dim.next ]
  %size = phi i64 [ %itemsize, %dims ], [ %size1, %dim.next ]
  %far = phi i64 [ %itemsize, %dims ], [ %far1, %dim.next ]
  %dim.more = icmp slt i64 %d, %rank
  br i1 %dim.more, label %dim.one, label %param.take
dim.one:
  %have = field i64 %have.dims, %d
  %want0 = field i64 %extents, %d
  %number.given = icmp sge i64 %want0, 0
  %constant = or i1 %number.given, $PLAIN
  br i1 %constant, label %dim.compare, label %dim.scalar
dim.scalar:
  %number = xor i64 %want0, -1
  %derived = icmp sge i64 %number, %nscalars
  br i1 %derived, label %dim.derived, label %dim.bind
dim.derived:
  %waiting = load i64, ptr %npending
  %room = icmp slt i64 %waiting, $MOST_PARAMS
  br i1 %room, label %dim.wait, label %slow
dim.wait:
  %which.p = getelementptr [2 x i64], ptr %pending, i64 %waiting
  %which = sub i64 %number, %nscalars
  store i64 %which, ptr %which.p
  %wait.p = getelementptr i64, ptr %which.p, i64 1
  store i64 %have, ptr %wait.p
  %waiting1 = add i64 %waiting, 1
  store i64 %waiting1, ptr %npending
  br label %dim.compare
dim.bind:
  %scalar.p = getelementptr i64, ptr %scalars, i64 %number
  %bound = load i64, ptr %scalar.p
  %unbound = icmp eq i64 %bound, -1
  %want1 = select i1 %unbound, i64 %have, i64 %bound
  store i64 %want1, ptr %scalar.p
  br label %dim.compare
dim.compare:
  %want = phi i64 [ %want0, %dim.one ], [ %want1, %dim.bind ], [ %have, %dim.wait ]
  %same = icmp eq i64 %have, %want
  br i1 %same, label %dim.stride, label %slow
dim.stride:
  %size1 = mul i64 %size, %have
  br i1 %is.strided, label %stride.check, label %dim.next
stride.check:
  %stride = field i64 %have.strides, %d
  %stride.want = field i64 %strides, %d
  %stride.same = icmp eq i64 %stride, %stride.want
  %stride.positive = icmp sge i64 %stride, 0
  %stride.ok = and i1 %stride.same, %stride.positive
  %steps = sub i64 %have, 1
  %reach = mul i64 %steps, %stride
  br i1 %stride.ok, label %dim.next, label %slow
dim.next:
  %reach1 = phi i64 [ 0, %dim.stride ], [ %reach, %stride.check ]
  %far1 = add i64 %far, %reach1
  %d1 = add i64 %d, 1
  br label %dim
param.take:
  %empty = icmp eq i64 %size, 0
  %span0 = select i1 %is.strided, i64 %far, i64 %size
  %span = select i1 %empty, i64 0, i64 %span0
  %end = add i64 %data, %span
  %begins.p = getelementptr i64, ptr %begins, i64 %p
  store i64 %data, ptr %begins.p
  %ends.p = getelementptr i64, ptr %ends, i64 %p
  store i64 %end, ptr %ends.p
  %buffers.p = getelementptr i64, ptr %buffers, i64 %p
  store i64 %data, ptr %buffers.p
  br label %param.next
param.next:
  %taken = phi i64 [ 0, %param.later ], [ 1, %param.take ]
  %more.tensors = phi i64 [ 0, %param.later ], [ %one.tensor, %param.take ]
  %tensors1 = add i64 %tensors, %more.tensors
  %a.next = add i64 %a, %taken
  %p1 = add i64 %p, 1
  br label %param

measure:                                          ; what depends on the scalars, once all are known
  %measurer = field ptr %table, $H_sizes
  %no.measurer = icmp eq ptr %measurer, null
  %no.sizes = or i1 %no.measurer, $PLAIN
  br i1 %no.sizes, label %overlap, label %given
given:
  %b = phi i64 [ 0, %measure ], [ %b1, %given.next ]
  %given.more = icmp slt i64 %b, %nscalars
  br i1 %given.more, label %given.one, label %given.end
given.one:
  %b.value = field i64 %scalars, %b
  %b.unknown = icmp eq i64 %b.value, -1
  br i1 %b.unknown, label %slow, label %given.next
given.next:
  %b1 = add i64 %b, 1
  br label %given
given.end:
  call void %measurer(ptr %scalars, ptr %sizes)
  %nwaiting = load i64, ptr %npending
  br label %waited
waited:
  %e = phi i64 [ 0, %given.end ], [ %e1, %waited.one ]
  %waited.more = icmp slt i64 %e, %nwaiting
  br i1 %waited.more, label %waited.one, label %overlap
waited.one:
  %e.p = getelementptr [2 x i64], ptr %pending, i64 %e
  %e.number = field i64 %e.p, 0
  %e.have = field i64 %e.p, 1
  %e.at = add i64 %e.number, 4
  %e.need = field i64 %sizes, %e.at
  %e.same = icmp eq i64 %e.have, %e.need
  %e1 = add i64 %e, 1
  br i1 %e.same, label %waited, label %slow

overlap:
  %some.tensors = icmp ne i64 %tensors, 0
  %only.tensors = icmp eq i64 %tensors, %ninputs
  %all.tensors = and i1 %some.tensors, %only.tensors   ; what is made is what was given
  %of.tensors = and i1 %all.tensors, $GENERAL
  br i1 %making, label %outputs, label %overlap.out
overlap.out:
  %o = phi i64 [ 0, %overlap ], [ %o1, %overlap.next ]
  %o.more = icmp slt i64 %o, %nparams
  br i1 %o.more, label %overlap.is, label %ready
overlap.is:
  %o.isout.p = getelementptr i8, ptr %isout, i64 %o
  %o.isout = load i8, ptr %o.isout.p
  %o.yes = icmp ne i8 %o.isout, 0
  br i1 %o.yes, label %overlap.with, label %overlap.next
overlap.with:
  %o.begin.p = getelementptr i64, ptr %begins, i64 %o
  %o.begin = load i64, ptr %o.begin.p
  %o.end.p = getelementptr i64, ptr %ends, i64 %o
  %o.end = load i64, ptr %o.end.p
  br label %against
against:
  %q = phi i64 [ 0, %overlap.with ], [ %q1, %against.next ]
  %q.more = icmp slt i64 %q, %nparams
  br i1 %q.more, label %against.one, label %overlap.next
against.one:
  %q.begin.p = getelementptr i64, ptr %begins, i64 %q
  %q.begin = load i64, ptr %q.begin.p
  %q.end.p = getelementptr i64, ptr %ends, i64 %q
  %q.end = load i64, ptr %q.end.p
  %before = icmp ult i64 %o.begin, %q.end
  %after = icmp ult i64 %q.begin, %o.end
  %other = icmp ne i64 %o, %q
  %touch = and i1 %before, %after
  %clash = and i1 %touch, %other
  br i1 %clash, label %slow, label %against.next
against.next:
  %q1 = add i64 %q, 1
  br label %against
overlap.next:
  %o1 = add i64 %o, 1
  br label %overlap.out

outputs:
  %m = phi i64 [ 0, %overlap ], [ %m1, %outputs.next ]
  %m.more = icmp slt i64 %m, %nparams
  br i1 %m.more, label %outputs.one, label %ready
outputs.one:
  %m.p = getelementptr ptr, ptr %outs, i64 %m
  %m.record = load ptr, ptr %m.p
  %m.none = icmp eq ptr %m.record, null
  br i1 %m.none, label %outputs.next, label %outputs.make
outputs.make:
  %m.which = select i1 %of.tensors, i64 $R_make_tensor, i64 $R_make
  %m.maker = field ptr %m.record, %m.which
  %m.symbolic = field i64 %m.record, $R_symbolic
  %m.constant = icmp eq i64 %m.symbolic, 0
  %m.plain = or i1 %m.constant, $PLAIN
  br i1 %m.plain, label %make.plain, label %make.shaped
make.plain:
  %made0 = call ptr @PyObject_CallNoArgs(ptr %m.maker)
  br label %outputs.made
make.shaped:
  %m.descr0 = field ptr %m.record, $R_descr
  %m.descr = select i1 %of.tensors, ptr null, ptr %m.descr0   ; torch's maker knows its own
  %made1 = call ptr @shaped(ptr %m.maker, ptr %m.record, ptr %scalars, i64 %nscalars, ptr %sizes, ptr %m.descr)
  br label %outputs.made
outputs.made:
  %made = phi ptr [ %made0, %make.plain ], [ %made1, %make.shaped ]
  store ptr %made, ptr %m.p
  %m.failed = icmp eq ptr %made, null
  br i1 %m.failed, label %outputs.failed, label %outputs.take
outputs.failed:
  br label %undo
outputs.take:
  br i1 %of.tensors, label %take.tensor, label %take.array
take.tensor:
  %exchange = field ptr %table, $H_exchange
  %not.seen = call i32 %exchange(ptr %made, ptr %dl)
  %seen = icmp eq i32 %not.seen, 0
  br i1 %seen, label %take.tensor.data, label %take.failed
take.failed:
  %m2 = add i64 %m, 1
  br label %undo
take.tensor.data:
  %tensor.data = at ptr %dl, $T_data
  br label %take
take.array:
  %array.data = at ptr %made, $A_data
  br label %take
take:
  %made.data = phi ptr [ %tensor.data, %take.tensor.data ], [ %array.data, %take.array ]
  %made.p = getelementptr ptr, ptr %buffers, i64 %m
  store ptr %made.data, ptr %made.p
  br label %outputs.next
outputs.next:
  %m1 = add i64 %m, 1
  br label %outputs

ready:
  br i1 %no.sizes, label %ready.fixed, label %ready.measured
ready.fixed:
  %release = and i64 %flags, 1
  %long0 = icmp ne i64 %release, 0
  br label %go
ready.measured:
  %work = field i64 %sizes, 2
  %moved = field i64 %sizes, 3
  %much.work = icmp ugt i64 %work, $LONG_FLOPS
  %much.moved = icmp ugt i64 %moved, $LONG_BYTES
  %long1 = or i1 %much.work, %much.moved
  br label %go
go:
  %long = phi i1 [ %long0, %ready.fixed ], [ %long1, %ready.measured ]
  br i1 %long, label %run.free, label %run.held
run.free:
  %state = call ptr @PyEval_SaveThread()
  %code0 = call i32 @invoke(ptr %table, ptr %buffers, ptr %scalars, ptr %error)
  call void @PyEval_RestoreThread(ptr %state)
  br label %ran
run.held:
  %code1 = call i32 @invoke(ptr %table, ptr %buffers, ptr %scalars, ptr %error)
  br label %ran
ran:
  %code = phi i32 [ %code0, %run.free ], [ %code1, %run.held ]
  %good = icmp eq i32 %code, 0
  br i1 %good, label %finish, label %failed
failed:
  %r = call ptr @raise(ptr %self, ptr %table, i32 %code, ptr %error)
  br i1 %making, label %undo, label %failed.end
failed.end:
  ret ptr null

undo:                                             ; let go of the outputs 0 .. n that were made
  %n = phi i64 [ %m, %outputs.failed ], [ %m2, %take.failed ], [ %nparams, %failed ]
  %tell = phi i1 [ %m.plain, %outputs.failed ], [ true, %take.failed ], [ true, %failed ]
  br label %undo.one
undo.one:
  %w = phi i64 [ 0, %undo ], [ %w1, %undo.next ]
  %w.more = icmp slt i64 %w, %n
  br i1 %w.more, label %undo.look, label %undo.end
undo.look:
  %w.p = getelementptr ptr, ptr %outs, i64 %w
  %w.object = load ptr, ptr %w.p
  %w.none = icmp eq ptr %w.object, null
  br i1 %w.none, label %undo.next, label %undo.drop
undo.drop:
  call void @Py_DecRef(ptr %w.object)
  br label %undo.next
undo.next:
  %w1 = add i64 %w, 1
  br label %undo.one
undo.end:
  br i1 %tell, label %undo.told, label %undo.ask
undo.told:
  ret ptr null
undo.ask:                                         ; no array has that shape
  call void @PyErr_Clear()
  br label %slow

finish:
  br i1 %making, label %give.back, label %nothing
nothing:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
give.back:
  %nouts = sub i64 %nparams, %ninputs
  %just.one = icmp eq i64 %nouts, 1
  br i1 %just.one, label %one, label %several
one:
  %f = phi i64 [ 0, %give.back ], [ %f1, %one.next ]
  %f.p = getelementptr ptr, ptr %outs, i64 %f
  %f.object = load ptr, ptr %f.p
  %f.none = icmp eq ptr %f.object, null
  br i1 %f.none, label %one.next, label %one.found
one.next:
  %f1 = add i64 %f, 1
  br label %one
one.found:
  ret ptr %f.object
several:
  %tuple = call ptr @PyTuple_New(i64 %nouts)
  %t.none = icmp eq ptr %tuple, null
  br i1 %t.none, label %several.failed, label %fill
several.failed:
  ret ptr null
fill:
  %g = phi i64 [ 0, %several ], [ %g1, %fill.next ]
  %k = phi i64 [ 0, %several ], [ %k1, %fill.next ]
  %g.more = icmp slt i64 %g, %nparams
  br i1 %g.more, label %fill.look, label %fill.end
fill.look:
  %g.p = getelementptr ptr, ptr %outs, i64 %g
  %g.object = load ptr, ptr %g.p
  %g.none = icmp eq ptr %g.object, null
  br i1 %g.none, label %fill.next, label %fill.set
fill.set:
  %s = call i32 @PyTuple_SetItem(ptr %tuple, i64 %k, ptr %g.object)
  br label %fill.next
fill.next:
  %step = phi i64 [ 0, %fill.look ], [ 1, %fill.set ]
  %k1 = add i64 %k, %step
  %g1 = add i64 %g, 1
  br label %fill
fill.end:
  ret ptr %tuple

slow:
  %result = call ptr @slow(ptr %self, ptr %args, i64 %nargs, ptr %names)
  ret ptr %result
}
"""
