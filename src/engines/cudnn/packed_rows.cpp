// Made by tools/make_ptx.py from packed_rows.cu: do not edit.
// sha256 of its sources: bfe062914458a0e4c891fd1d16a63d25d8869c6b422d2f0e0b3c76e83c2458b3
#include "engines/cudnn/packed.h"

namespace fovea::cudnn {

const char* const packed_rows_ptx = R"ptx(.version 7.0
.target sm_80
.address_size 64
.visible .entry fovea_packed_tables( .param .align 8 .b8 fovea_packed_tables_param_0[392] ) { .reg .pred
%p<19>; .reg .b32 %r<11>; .reg .b64 %rd<93>; mov.b64 %rd26, fovea_packed_tables_param_0; mov.u32 %r5,
%ctaid.x; mov.u32 %r6, %ntid.x; mul.wide.u32 %rd27, %r5, %r6; mov.u32 %r7, %tid.x; cvt.u64.u32 %rd28, %r7;
add.s64 %rd2, %rd27, %rd28; add.s64 %rd3, %rd26, 72; ld.param.u64 %rd4, [fovea_packed_tables_param_0+72];
setp.gt.s64 %p1, %rd2, %rd4; @%p1 bra $L__BB0_16; ld.param.u64 %rd5, [%rd3+-8]; ld.param.u32 %r1, [%rd3+24];
setp.lt.s32 %p2, %r1, 1; @%p2 bra $L__BB0_6; add.s64 %rd6, %rd26, 32; min.s64 %rd7, %rd5, %rd2; mov.u32 %r10,
1; shl.b64 %rd32, %rd7, 2; mov.u64 %rd87, %rd26; $L__BB0_3: ld.param.u32 %r9, [%rd87+120]; mov.u64 %rd88, 0;
setp.eq.s32 %p3, %r9, 0; selp.b64 %rd10, %rd26, %rd6, %p3; ld.param.u64 %rd30, [%rd10]; cvta.to.global.u64
%rd31, %rd30; add.s64 %rd33, %rd31, %rd32; ld.global.u32 %r3, [%rd33]; setp.lt.s32 %p4, %r3, 0; @%p4 bra
$L__BB0_5; cvt.s64.s32 %rd34, %r3; ld.param.u64 %rd35, [%rd10+16]; min.s64 %rd88, %rd35, %rd34; $L__BB0_5:
ld.param.u64 %rd36, [%rd87+112]; mul.lo.s64 %rd37, %rd36, %rd88; ld.param.u64 %rd38, [%rd87+104];
cvta.to.global.u64 %rd39, %rd38; shl.b64 %rd40, %rd2, 3; add.s64 %rd41, %rd39, %rd40; st.global.u64 [%rd41],
%rd37; setp.lt.s32 %p5, %r10, %r1; setp.lt.u32 %p6, %r10, 12; and.pred %p7, %p6, %p5; add.s64 %rd87, %rd87,
24; add.s32 %r10, %r10, 1; @%p7 bra $L__BB0_3; $L__BB0_6: setp.le.s64 %p8, %rd4, %rd2; @%p8 bra $L__BB0_16;
setp.le.s64 %p9, %rd5, %rd2; mov.u64 %rd92, 0; mov.u64 %rd90, %rd92; @%p9 bra $L__BB0_11; ld.param.u64 %rd43,
[%rd3+-72]; cvta.to.global.u64 %rd44, %rd43; shl.b64 %rd45, %rd2, 2; add.s64 %rd46, %rd44, %rd45;
ld.global.s32 %rd47, [%rd46]; setp.lt.s64 %p10, %rd47, 0; ld.param.u64 %rd48, [%rd3+-56]; min.s64 %rd49,
%rd48, %rd47; selp.b64 %rd50, 0, %rd49, %p10; ld.global.s32 %rd51, [%rd46+4]; setp.lt.s64 %p11, %rd51, 0;
min.s64 %rd52, %rd48, %rd51; selp.b64 %rd53, 0, %rd52, %p11; sub.s64 %rd89, %rd53, %rd50; ld.param.u64 %rd15,
[%rd3+-64]; setp.eq.s64 %p12, %rd15, 0; @%p12 bra $L__BB0_10; cvta.to.global.u64 %rd54, %rd15; add.s64 %rd56,
%rd54, %rd45; ld.global.s32 %rd57, [%rd56]; min.s64 %rd89, %rd89, %rd57; $L__BB0_10: ld.param.u64 %rd58,
[%rd3+-48]; min.s64 %rd59, %rd89, %rd58; max.s64 %rd90, %rd59, 0; $L__BB0_11: @%p9 bra $L__BB0_15;
ld.param.u64 %rd61, [%rd3+-40]; cvta.to.global.u64 %rd62, %rd61; shl.b64 %rd63, %rd2, 2; add.s64 %rd64, %rd62,
%rd63; ld.global.s32 %rd65, [%rd64]; setp.lt.s64 %p14, %rd65, 0; ld.param.u64 %rd66, [%rd3+-24]; min.s64
%rd67, %rd66, %rd65; selp.b64 %rd68, 0, %rd67, %p14; ld.global.s32 %rd69, [%rd64+4]; setp.lt.s64 %p15, %rd69,
0; min.s64 %rd70, %rd66, %rd69; selp.b64 %rd71, 0, %rd70, %p15; sub.s64 %rd91, %rd71, %rd68; ld.param.u64
%rd21, [%rd3+-32]; setp.eq.s64 %p16, %rd21, 0; @%p16 bra $L__BB0_14; cvta.to.global.u64 %rd72, %rd21; add.s64
%rd74, %rd72, %rd63; ld.global.s32 %rd75, [%rd74]; min.s64 %rd91, %rd91, %rd75; $L__BB0_14: ld.param.u64
%rd76, [%rd3+-16]; min.s64 %rd77, %rd91, %rd76; max.s64 %rd92, %rd77, 0; $L__BB0_15: setp.eq.s64 %p17, %rd92,
0; selp.b64 %rd78, 0, %rd90, %p17; ld.param.u64 %rd79, [%rd3+8]; cvta.to.global.u64 %rd80, %rd79; shl.b64
%rd81, %rd2, 2; add.s64 %rd82, %rd80, %rd81; st.global.u32 [%rd82], %rd78; setp.eq.s64 %p18, %rd90, 0;
selp.b64 %rd83, 0, %rd92, %p18; ld.param.u64 %rd84, [%rd3+16]; cvta.to.global.u64 %rd85, %rd84; add.s64 %rd86,
%rd85, %rd81; st.global.u32 [%rd86], %rd83; $L__BB0_16: ret; }
.visible .entry fovea_packed_clear( .param .align 8 .b8 fovea_packed_clear_param_0[192] ) { .reg .pred %p<16>;
.reg .b32 %r<18>; .reg .b64 %rd<142>; mov.b64 %rd81, fovea_packed_clear_param_0; add.s64 %rd128, %rd81, 72;
add.s64 %rd127, %rd81, 80; add.s64 %rd126, %rd81, 88; add.s64 %rd125, %rd81, 96; add.s64 %rd124, %rd81, 100;
add.s64 %rd129, %rd81, 104; add.s64 %rd130, %rd81, 108; mov.u32 %r1, %ctaid.z; setp.ne.s32 %p1, %r1, 1; @%p1
bra $L__BB1_2; add.s64 %rd128, %rd81, 112; add.s64 %rd127, %rd81, 120; add.s64 %rd126, %rd81, 128; add.s64
%rd125, %rd81, 136; add.s64 %rd124, %rd81, 140; add.s64 %rd129, %rd81, 144; add.s64 %rd130, %rd81, 148;
$L__BB1_2: setp.ne.s32 %p2, %r1, 2; @%p2 bra $L__BB1_4; add.s64 %rd128, %rd81, 152; add.s64 %rd127, %rd81,
160; add.s64 %rd126, %rd81, 168; add.s64 %rd125, %rd81, 176; add.s64 %rd124, %rd81, 180; add.s64 %rd129,
%rd81, 184; add.s64 %rd130, %rd81, 188; $L__BB1_4: ld.param.u32 %r2, [%rd129]; ld.param.u64 %rd37, [%rd127];
ld.param.u64 %rd38, [%rd126]; ld.param.u32 %r3, [%rd125]; ld.param.s32 %rd39, [%rd124]; ld.param.u64 %rd40,
[%rd128]; ld.param.u32 %r6, [%rd130]; setp.eq.s32 %p3, %r6, 0; @%p3 bra $L__BB1_6; add.s64 %rd131, %rd81, 32;
bra.uni $L__BB1_7; $L__BB1_6: mov.u64 %rd131, %rd81; $L__BB1_7: mov.u32 %r7, %ctaid.x; cvt.u64.u32 %rd44, %r7;
ld.param.u64 %rd45, [%rd81+64]; mov.u64 %rd136, 0; setp.eq.s32 %p4, %r7, 0; @%p4 bra $L__BB1_17; ld.param.u64
%rd84, [%rd131]; mov.u64 %rd133, 0; cvta.to.global.u64 %rd85, %rd84; shl.b64 %rd86, %rd44, 2; add.s64 %rd47,
%rd85, %rd86; ld.global.s32 %rd48, [%rd47+-4]; setp.lt.s64 %p5, %rd48, 0; mov.u64 %rd132, %rd133; @%p5 bra
$L__BB1_10; ld.param.u64 %rd87, [%rd131+16]; min.s64 %rd132, %rd87, %rd48; $L__BB1_10: cvt.u32.u64 %r8, %rd48;
setp.lt.s32 %p6, %r8, 0; @%p6 bra $L__BB1_12; ld.param.u64 %rd89, [%rd131+16]; min.s64 %rd133, %rd89, %rd48;
$L__BB1_12: ld.global.u32 %r4, [%rd47]; mov.u64 %rd134, 0; setp.lt.s32 %p7, %r4, 0; @%p7 bra $L__BB1_14;
cvt.s64.s32 %rd91, %r4; ld.param.u64 %rd92, [%rd131+16]; min.s64 %rd134, %rd92, %rd91; $L__BB1_14: sub.s64
%rd135, %rd134, %rd133; ld.param.u64 %rd56, [%rd131+8]; setp.eq.s64 %p8, %rd56, 0; @%p8 bra $L__BB1_16;
cvta.to.global.u64 %rd93, %rd56; add.s64 %rd95, %rd93, %rd86; ld.global.s32 %rd96, [%rd95+-4]; min.s64 %rd135,
%rd135, %rd96; $L__BB1_16: ld.param.u64 %rd97, [%rd131+24]; min.s64 %rd98, %rd135, %rd97; max.s64 %rd99,
%rd98, 0; add.s64 %rd136, %rd99, %rd132; $L__BB1_17: setp.eq.s64 %p9, %rd45, %rd44; @%p9 bra $L__BB1_20;
bra.uni $L__BB1_18; $L__BB1_20: ld.param.u64 %rd137, [%rd131+16]; bra.uni $L__BB1_21; $L__BB1_18: ld.param.u64
%rd101, [%rd131]; mov.u64 %rd137, 0; cvta.to.global.u64 %rd102, %rd101; shl.b64 %rd103, %rd44, 2; add.s64
%rd104, %rd102, %rd103; ld.global.u32 %r5, [%rd104]; setp.lt.s32 %p10, %r5, 0; @%p10 bra $L__BB1_21;
cvt.s64.s32 %rd105, %r5; ld.param.u64 %rd106, [%rd131+16]; min.s64 %rd137, %rd106, %rd105; $L__BB1_21: mov.u32
%r9, %ctaid.y; cvt.u64.u32 %rd107, %r9; add.s64 %rd138, %rd136, %rd107; setp.ge.s64 %p11, %rd138, %rd137;
@%p11 bra $L__BB1_30; mov.u32 %r10, %tid.x; cvt.u64.u32 %rd65, %r10; mov.u32 %r11, %ntid.x; cvt.u64.u32 %rd66,
%r11; cvt.s64.s32 %rd108, %r3; mul.lo.s64 %rd67, %rd108, %rd39; mov.u32 %r12, %nctaid.y; cvt.u64.u32 %rd68,
%r12; cvta.to.global.u64 %rd69, %rd40; cvt.u32.u64 %r13, %rd39; $L__BB1_23: setp.le.s64 %p12, %rd67, %rd65;
@%p12 bra $L__BB1_29; mul.lo.s64 %rd71, %rd138, %rd37; mov.u64 %rd139, %rd65; $L__BB1_25: or.b64 %rd109,
%rd139, %rd39; and.b64 %rd110, %rd109, -4294967296; setp.eq.s64 %p13, %rd110, 0; @%p13 bra $L__BB1_27; div.s64
%rd140, %rd139, %rd39; mul.lo.s64 %rd111, %rd140, %rd39; sub.s64 %rd141, %rd139, %rd111; bra.uni $L__BB1_28;
$L__BB1_27: cvt.u32.u64 %r14, %rd139; div.u32 %r15, %r14, %r13; mul.lo.s32 %r16, %r15, %r13; sub.s32 %r17,
%r14, %r16; cvt.u64.u32 %rd140, %r15; cvt.u64.u32 %rd141, %r17; $L__BB1_28: mul.lo.s64 %rd112, %rd140, %rd38;
add.s64 %rd113, %rd112, %rd71; add.s64 %rd114, %rd113, %rd141; shl.b64 %rd115, %rd114, 2; add.s64 %rd116,
%rd69, %rd115; st.global.u32 [%rd116], %r2; add.s64 %rd139, %rd139, %rd66; setp.lt.s64 %p14, %rd139, %rd67;
@%p14 bra $L__BB1_25; $L__BB1_29: add.s64 %rd138, %rd138, %rd68; setp.lt.s64 %p15, %rd138, %rd137; @%p15 bra
$L__BB1_23; $L__BB1_30: ret; }
.visible .entry fovea_packed_transpose( .param .align 8 .b8 fovea_packed_transpose_param_0[32] ) { .reg .pred
%p<22>; .reg .b32 %r<98>; .reg .b64 %rd<285>; ld.param.v2.u32 {%r4, %r5}, [fovea_packed_transpose_param_0+24];
ld.param.u64 %rd96, [fovea_packed_transpose_param_0+16]; ld.param.u64 %rd95,
[fovea_packed_transpose_param_0+8]; ld.param.u64 %rd94, [fovea_packed_transpose_param_0]; cvta.to.global.u64
%rd1, %rd94; cvta.to.global.u64 %rd2, %rd95; mov.u32 %r6, %ntid.x; mov.u32 %r7, %ctaid.x; mul.wide.u32 %rd97,
%r7, %r6; mov.u32 %r8, %tid.x; cvt.u64.u32 %rd98, %r8; add.s64 %rd272, %rd97, %rd98; cvt.s64.s32 %rd3, %r4;
mul.lo.s64 %rd100, %rd96, %rd3; setp.ge.s64 %p1, %rd272, %rd100; @%p1 bra $L__BB2_43; mov.u32 %r9, %nctaid.x;
cvt.u64.u32 %rd102, %r9; cvt.u64.u32 %rd103, %r6; mul.wide.u32 %rd104, %r9, %r6; add.s64 %rd105, %rd100,
%rd104; cvt.u64.u32 %rd106, %r7; add.s64 %rd107, %rd102, %rd106; mul.lo.s64 %rd108, %rd107, %rd103; add.s64
%rd110, %rd108, %rd98; not.b64 %rd111, %rd110; add.s64 %rd112, %rd105, %rd111; or.b64 %rd113, %rd112, %rd104;
and.b64 %rd114, %rd113, -4294967296; setp.eq.s64 %p2, %rd114, 0; @%p2 bra $L__BB2_3; div.u64 %rd258, %rd112,
%rd104; bra.uni $L__BB2_4; $L__BB2_3: cvt.u32.u64 %r19, %rd104; cvt.u64.u32 %rd131, %r4; mul.lo.s64 %rd132,
%rd96, %rd131; add.s64 %rd133, %rd132, %rd104; add.s64 %rd140, %rd133, %rd111; cvt.u32.u64 %r22, %rd140;
div.u32 %r23, %r22, %r19; cvt.u64.u32 %rd258, %r23; $L__BB2_4: add.s64 %rd141, %rd258, 1; and.b64 %rd260,
%rd141, 3; setp.eq.s32 %p3, %r5, 0; @%p3 bra $L__BB2_24; setp.eq.s64 %p4, %rd260, 0; add.s64 %rd259, %rd97,
%rd98; @%p4 bra $L__BB2_10; $L__BB2_6: .pragma "nounroll"; or.b64 %rd144, %rd259, %rd96; and.b64 %rd145,
%rd144, -4294967296; setp.eq.s64 %p5, %rd145, 0; @%p5 bra $L__BB2_8; div.s64 %rd261, %rd259, %rd96; mul.lo.s64
%rd146, %rd261, %rd96; sub.s64 %rd262, %rd259, %rd146; bra.uni $L__BB2_9; $L__BB2_8: cvt.u32.u64 %r27, %rd96;
cvt.u32.u64 %r28, %rd259; div.u32 %r29, %r28, %r27; mul.lo.s32 %r30, %r29, %r27; sub.s32 %r31, %r28, %r30;
cvt.u64.u32 %rd261, %r29; cvt.u64.u32 %rd262, %r31; $L__BB2_9: mul.lo.s64 %rd147, %rd261, %rd96; add.s64
%rd148, %rd147, %rd262; mul.lo.s64 %rd149, %rd262, %rd3; add.s64 %rd150, %rd149, %rd261; shl.b64 %rd151,
%rd150, 2; add.s64 %rd152, %rd1, %rd151; ld.global.u32 %r32, [%rd152]; shl.b64 %rd153, %rd148, 2; add.s64
%rd154, %rd2, %rd153; st.global.u32 [%rd154], %r32; add.s64 %rd259, %rd259, %rd104; add.s64 %rd260, %rd260,
-1; setp.ne.s64 %p6, %rd260, 0; @%p6 bra $L__BB2_6; $L__BB2_10: setp.lt.u64 %p7, %rd258, 3; @%p7 bra
$L__BB2_43; $L__BB2_11: or.b64 %rd156, %rd259, %rd96; and.b64 %rd157, %rd156, -4294967296; setp.eq.s64 %p8,
%rd157, 0; @%p8 bra $L__BB2_13; div.s64 %rd264, %rd259, %rd96; mul.lo.s64 %rd158, %rd264, %rd96; sub.s64
%rd265, %rd259, %rd158; bra.uni $L__BB2_14; $L__BB2_13: cvt.u32.u64 %r37, %rd96; cvt.u32.u64 %r38, %rd259;
div.u32 %r39, %r38, %r37; mul.lo.s32 %r40, %r39, %r37; sub.s32 %r41, %r38, %r40; cvt.u64.u32 %rd264, %r39;
cvt.u64.u32 %rd265, %r41; $L__BB2_14: mul.lo.s64 %rd159, %rd264, %rd96; add.s64 %rd160, %rd159, %rd265;
mul.lo.s64 %rd161, %rd265, %rd3; add.s64 %rd162, %rd161, %rd264; shl.b64 %rd163, %rd162, 2; add.s64 %rd164,
%rd1, %rd163; ld.global.u32 %r42, [%rd164]; shl.b64 %rd165, %rd160, 2; add.s64 %rd166, %rd2, %rd165;
st.global.u32 [%rd166], %r42; add.s64 %rd30, %rd259, %rd104; or.b64 %rd167, %rd30, %rd96; and.b64 %rd168,
%rd167, -4294967296; setp.eq.s64 %p9, %rd168, 0; @%p9 bra $L__BB2_16; div.s64 %rd266, %rd30, %rd96; mul.lo.s64
%rd169, %rd266, %rd96; sub.s64 %rd267, %rd30, %rd169; bra.uni $L__BB2_17; $L__BB2_16: cvt.u32.u64 %r43, %rd96;
cvt.u32.u64 %r44, %rd30; div.u32 %r45, %r44, %r43; mul.lo.s32 %r46, %r45, %r43; sub.s32 %r47, %r44, %r46;
cvt.u64.u32 %rd266, %r45; cvt.u64.u32 %rd267, %r47; $L__BB2_17: mul.lo.s64 %rd170, %rd266, %rd96; add.s64
%rd171, %rd170, %rd267; mul.lo.s64 %rd172, %rd267, %rd3; add.s64 %rd173, %rd172, %rd266; shl.b64 %rd174,
%rd173, 2; add.s64 %rd175, %rd1, %rd174; ld.global.u32 %r48, [%rd175]; shl.b64 %rd176, %rd171, 2; add.s64
%rd177, %rd2, %rd176; st.global.u32 [%rd177], %r48; add.s64 %rd37, %rd30, %rd104; or.b64 %rd178, %rd37, %rd96;
and.b64 %rd179, %rd178, -4294967296; setp.eq.s64 %p10, %rd179, 0; @%p10 bra $L__BB2_19; div.s64 %rd268, %rd37,
%rd96; mul.lo.s64 %rd180, %rd268, %rd96; sub.s64 %rd269, %rd37, %rd180; bra.uni $L__BB2_20; $L__BB2_19:
cvt.u32.u64 %r49, %rd96; cvt.u32.u64 %r50, %rd37; div.u32 %r51, %r50, %r49; mul.lo.s32 %r52, %r51, %r49;
sub.s32 %r53, %r50, %r52; cvt.u64.u32 %rd268, %r51; cvt.u64.u32 %rd269, %r53; $L__BB2_20: mul.lo.s64 %rd181,
%rd268, %rd96; add.s64 %rd182, %rd181, %rd269; mul.lo.s64 %rd183, %rd269, %rd3; add.s64 %rd184, %rd183,
%rd268; shl.b64 %rd185, %rd184, 2; add.s64 %rd186, %rd1, %rd185; ld.global.u32 %r54, [%rd186]; shl.b64 %rd187,
%rd182, 2; add.s64 %rd188, %rd2, %rd187; st.global.u32 [%rd188], %r54; add.s64 %rd44, %rd37, %rd104; or.b64
%rd189, %rd44, %rd96; and.b64 %rd190, %rd189, -4294967296; setp.eq.s64 %p11, %rd190, 0; @%p11 bra $L__BB2_22;
div.s64 %rd270, %rd44, %rd96; mul.lo.s64 %rd191, %rd270, %rd96; sub.s64 %rd271, %rd44, %rd191; bra.uni
$L__BB2_23; $L__BB2_22: cvt.u32.u64 %r55, %rd96; cvt.u32.u64 %r56, %rd44; div.u32 %r57, %r56, %r55; mul.lo.s32
%r58, %r57, %r55; sub.s32 %r59, %r56, %r58; cvt.u64.u32 %rd270, %r57; cvt.u64.u32 %rd271, %r59; $L__BB2_23:
mul.lo.s64 %rd192, %rd270, %rd96; add.s64 %rd193, %rd192, %rd271; mul.lo.s64 %rd194, %rd271, %rd3; add.s64
%rd195, %rd194, %rd270; shl.b64 %rd196, %rd195, 2; add.s64 %rd197, %rd1, %rd196; ld.global.u32 %r60, [%rd197];
shl.b64 %rd198, %rd193, 2; add.s64 %rd199, %rd2, %rd198; st.global.u32 [%rd199], %r60; add.s64 %rd259, %rd44,
%rd104; setp.lt.s64 %p12, %rd259, %rd100; @%p12 bra $L__BB2_11; bra.uni $L__BB2_43; $L__BB2_24: setp.eq.s64
%p13, %rd260, 0; @%p13 bra $L__BB2_29; $L__BB2_25: .pragma "nounroll"; or.b64 %rd202, %rd272, %rd96; and.b64
%rd203, %rd202, -4294967296; setp.eq.s64 %p14, %rd203, 0; @%p14 bra $L__BB2_27; div.s64 %rd274, %rd272, %rd96;
mul.lo.s64 %rd204, %rd274, %rd96; sub.s64 %rd275, %rd272, %rd204; bra.uni $L__BB2_28; $L__BB2_27: cvt.u32.u64
%r64, %rd96; cvt.u32.u64 %r65, %rd272; div.u32 %r66, %r65, %r64; mul.lo.s32 %r67, %r66, %r64; sub.s32 %r68,
%r65, %r67; cvt.u64.u32 %rd274, %r66; cvt.u64.u32 %rd275, %r68; $L__BB2_28: mul.lo.s64 %rd205, %rd274, %rd96;
add.s64 %rd206, %rd205, %rd275; mul.lo.s64 %rd207, %rd275, %rd3; add.s64 %rd208, %rd207, %rd274; shl.b64
%rd209, %rd206, 2; add.s64 %rd210, %rd1, %rd209; ld.global.u32 %r69, [%rd210]; shl.b64 %rd211, %rd208, 2;
add.s64 %rd212, %rd2, %rd211; st.global.u32 [%rd212], %r69; add.s64 %rd272, %rd272, %rd104; add.s64 %rd260,
%rd260, -1; setp.ne.s64 %p15, %rd260, 0; @%p15 bra $L__BB2_25; $L__BB2_29: setp.lt.u64 %p16, %rd258, 3; @%p16
bra $L__BB2_43; $L__BB2_30: or.b64 %rd214, %rd272, %rd96; and.b64 %rd215, %rd214, -4294967296; setp.eq.s64
%p17, %rd215, 0; @%p17 bra $L__BB2_32; div.s64 %rd277, %rd272, %rd96; mul.lo.s64 %rd216, %rd277, %rd96;
sub.s64 %rd278, %rd272, %rd216; bra.uni $L__BB2_33; $L__BB2_32: cvt.u32.u64 %r74, %rd96; cvt.u32.u64 %r75,
%rd272; div.u32 %r76, %r75, %r74; mul.lo.s32 %r77, %r76, %r74; sub.s32 %r78, %r75, %r77; cvt.u64.u32 %rd277,
%r76; cvt.u64.u32 %rd278, %r78; $L__BB2_33: mul.lo.s64 %rd217, %rd277, %rd96; add.s64 %rd218, %rd217, %rd278;
mul.lo.s64 %rd219, %rd278, %rd3; add.s64 %rd220, %rd219, %rd277; shl.b64 %rd221, %rd218, 2; add.s64 %rd222,
%rd1, %rd221; ld.global.u32 %r79, [%rd222]; shl.b64 %rd223, %rd220, 2; add.s64 %rd224, %rd2, %rd223;
st.global.u32 [%rd224], %r79; add.s64 %rd72, %rd272, %rd104; or.b64 %rd225, %rd72, %rd96; and.b64 %rd226,
%rd225, -4294967296; setp.eq.s64 %p18, %rd226, 0; @%p18 bra $L__BB2_35; div.s64 %rd279, %rd72, %rd96;
mul.lo.s64 %rd227, %rd279, %rd96; sub.s64 %rd280, %rd72, %rd227; bra.uni $L__BB2_36; $L__BB2_35: cvt.u32.u64
%r80, %rd96; cvt.u32.u64 %r81, %rd72; div.u32 %r82, %r81, %r80; mul.lo.s32 %r83, %r82, %r80; sub.s32 %r84,
%r81, %r83; cvt.u64.u32 %rd279, %r82; cvt.u64.u32 %rd280, %r84; $L__BB2_36: mul.lo.s64 %rd228, %rd279, %rd96;
add.s64 %rd229, %rd228, %rd280; mul.lo.s64 %rd230, %rd280, %rd3; add.s64 %rd231, %rd230, %rd279; shl.b64
%rd232, %rd229, 2; add.s64 %rd233, %rd1, %rd232; ld.global.u32 %r85, [%rd233]; shl.b64 %rd234, %rd231, 2;
add.s64 %rd235, %rd2, %rd234; st.global.u32 [%rd235], %r85; add.s64 %rd79, %rd72, %rd104; or.b64 %rd236,
%rd79, %rd96; and.b64 %rd237, %rd236, -4294967296; setp.eq.s64 %p19, %rd237, 0; @%p19 bra $L__BB2_38; div.s64
%rd281, %rd79, %rd96; mul.lo.s64 %rd238, %rd281, %rd96; sub.s64 %rd282, %rd79, %rd238; bra.uni $L__BB2_39;
$L__BB2_38: cvt.u32.u64 %r86, %rd96; cvt.u32.u64 %r87, %rd79; div.u32 %r88, %r87, %r86; mul.lo.s32 %r89, %r88,
%r86; sub.s32 %r90, %r87, %r89; cvt.u64.u32 %rd281, %r88; cvt.u64.u32 %rd282, %r90; $L__BB2_39: mul.lo.s64
%rd239, %rd281, %rd96; add.s64 %rd240, %rd239, %rd282; mul.lo.s64 %rd241, %rd282, %rd3; add.s64 %rd242,
%rd241, %rd281; shl.b64 %rd243, %rd240, 2; add.s64 %rd244, %rd1, %rd243; ld.global.u32 %r91, [%rd244]; shl.b64
%rd245, %rd242, 2; add.s64 %rd246, %rd2, %rd245; st.global.u32 [%rd246], %r91; add.s64 %rd86, %rd79, %rd104;
or.b64 %rd247, %rd86, %rd96; and.b64 %rd248, %rd247, -4294967296; setp.eq.s64 %p20, %rd248, 0; @%p20 bra
$L__BB2_41; div.s64 %rd283, %rd86, %rd96; mul.lo.s64 %rd249, %rd283, %rd96; sub.s64 %rd284, %rd86, %rd249;
bra.uni $L__BB2_42; $L__BB2_41: cvt.u32.u64 %r92, %rd96; cvt.u32.u64 %r93, %rd86; div.u32 %r94, %r93, %r92;
mul.lo.s32 %r95, %r94, %r92; sub.s32 %r96, %r93, %r95; cvt.u64.u32 %rd283, %r94; cvt.u64.u32 %rd284, %r96;
$L__BB2_42: mul.lo.s64 %rd250, %rd283, %rd96; add.s64 %rd251, %rd250, %rd284; mul.lo.s64 %rd252, %rd284, %rd3;
add.s64 %rd253, %rd252, %rd283; shl.b64 %rd254, %rd251, 2; add.s64 %rd255, %rd1, %rd254; ld.global.u32 %r97,
[%rd255]; shl.b64 %rd256, %rd253, 2; add.s64 %rd257, %rd2, %rd256; st.global.u32 [%rd257], %r97; add.s64
%rd272, %rd86, %rd104; setp.lt.s64 %p21, %rd272, %rd100; @%p21 bra $L__BB2_30; $L__BB2_43: ret; })ptx";

}  // namespace fovea::cudnn
