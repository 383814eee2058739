// Every message of the verifiers.
// RUN: trc-opt %s --split-input-file --verify-diagnostics

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'c': arch.conv: out_channels is 0 and should be at least 1}}
  %0 = arch.conv %x {out_channels = 0, kernel = 3} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'c': arch.conv: out_channels is 2147483648 and should be at most 2147483647}}
  %0 = arch.conv %x {out_channels = 2147483648, kernel = 3} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{kernel is 0 and should be at least 1}}
  %0 = arch.conv %x {out_channels = 4, kernel = 0} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{stride is 0 and should be at least 1}}
  %0 = arch.conv %x {out_channels = 4, kernel = 1, stride = 0} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{padding is -1 and should be at least 0}}
  %0 = arch.conv %x {out_channels = 4, kernel = 1, padding = -1} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{groups is 0 and should be at least 1}}
  %0 = arch.conv %x {out_channels = 4, kernel = 1, groups = 0} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+2 {{stride is 0 and should be at least 1}}
  // expected-error@+1 {{groups is -2 and should be at least 1}}
  %0 = arch.conv %x {out_channels = 4, kernel = 1, stride = 0, groups = -2} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'c': arch.conv: out_channels is missing}}
  %0 = arch.conv %x {kernel = 3} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{3 groups do not divide 4 input channels}}
  %0 = arch.conv %x {out_channels = 6, kernel = 3, groups = 3} layer "c" : tensor<?x6x6x6xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{4 groups do not divide 6 output channels}}
  %0 = arch.conv %x {out_channels = 6, kernel = 3, groups = 4} layer "c" : tensor<?x6x6x6xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{a depthwise convolution of 4 channels cannot have 1 groups and 6 output channels}}
  %0 = arch.conv %x {out_channels = 6, kernel = 3, depthwise} layer "c" : tensor<?x6x6x6xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{a kernel of 9 does not fit into height 8}}
  %0 = arch.conv %x {out_channels = 6, kernel = 9} layer "c" : tensor<?x1x1x6xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{a kernel of 11 does not fit into height 8 padded by 1}}
  %0 = arch.conv %x {out_channels = 6, kernel = 11, padding = 1} layer "c" : tensor<?x1x1x6xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{gives 6x6x6 for 8x8x4, but its type says 8x8x6}}
  %0 = arch.conv %x {out_channels = 6, kernel = 3} layer "c" : tensor<?x8x8x6xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'b': arch.bn: momentum is 1.5 and should be at least 0.0 and at most 1.0}}
  %0 = arch.bn %x {momentum = 1.5} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'b': arch.bn1d: eps is 0.0 and should be above 0.0}}
  %0 = arch.bn1d %x {eps = 0.0} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'b': arch.bn2d: eps is -1.0 and should be above 0.0}}
  %0 = arch.bn2d %x {eps = -1.0} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{arch.leaky_relu: slope is inf and should be finite}}
  %0 = "arch.leaky_relu"(%x) <{slope = 0x7FF0000000000000 : f64}> : (tensor<?x8x8x4xf32>) -> tensor<?x8x8x4xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'e': arch.elu: alpha is 0.0 and should be above 0.0}}
  %0 = arch.elu %x {alpha = 0.0} layer "e"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'l': arch.leaky_relu: slope is -0.5 and should be at least 0.0}}
  %0 = arch.leaky_relu %x {slope = -0.5} layer "l"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'd': arch.dropout: p is 1.0 and should be at least 0.0 and below 1.0}}
  %0 = arch.dropout %x {p = 1.0} layer "d"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{p is -0.5 and should be at least 0.0 and below 1.0}}
  %0 = arch.dropout %x {p = -0.5} layer "d"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'p': arch.max_pool: padding 2 is not smaller than kernel 2, so a window could hold padding alone}}
  %0 = arch.max_pool %x {kernel = 2, stride = 2, padding = 2} layer "p"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'p': arch.avg_pool: a kernel of 9 does not fit into height 8}}
  %0 = arch.avg_pool %x {kernel = 9, stride = 1} layer "p" : tensor<?x1x1x4xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x4x4xf32>) {
  // expected-error@+1 {{a kernel of 5 does not fit into width 4}}
  %0 = arch.max_pool %x {kernel = 5, stride = 1} : tensor<?x4x?x4xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'f': arch.fc: out_features is 0 and should be at least 1}}
  %0 = arch.fc %x {out_features = 0} layer "f"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'f': arch.gap_fc: out_features is -3 and should be at least 1}}
  %0 = arch.gap_fc %x {out_features = -3} layer "f"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{arch.softmax_ce: num_classes is 1 and should be at least 2}}
  %0 = arch.softmax_ce %x {num_classes = 1}
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{label_smoothing is 1.0 and should be at least 0.0 and below 1.0}}
  %0 = arch.softmax_ce %x {num_classes = 10, label_smoothing = 1.0}
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x1x1x7xf32>) {
  // expected-error@+1 {{the network gives 7 numbers a sample, but there are 10 classes}}
  %0 = arch.softmax_ce %x {num_classes = 10} : tensor<?x1x1x7xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x2x2x3xf32>) {
  // expected-error@+1 {{the network gives 2x2x3 = 12 numbers a sample, but there are 10 classes}}
  %0 = arch.softmax_ce %x {num_classes = 10} : tensor<?x2x2x3xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'c': arch.cbr: eps is 0.0 and should be above 0.0}}
  %0 = arch.cbr %x {out_channels = 4, kernel = 1, eps = 0.0} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'c': arch.cbrp: pool_padding 3 is not smaller than pool_kernel 2, so a window could hold padding alone}}
  %0 = arch.cbrp %x {out_channels = 4, kernel = 1, pool_kernel = 2, pool_stride = 2, pool_padding = 3} layer "c"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{a kernel of 7 does not fit into height 6}}
  %0 = arch.cbrp %x {out_channels = 4, kernel = 3, pool_kernel = 7, pool_stride = 1} layer "c" : tensor<?x1x1x4xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'b': arch.bottleneck: shortcut is none and should be identity or projection}}
  %0 = arch.bottleneck %x {mid_channels = 4, out_channels = 4, shortcut = none} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'b': arch.basic_block: stride is 2, but an identity shortcut needs 1}}
  %0 = arch.basic_block %x {out_channels = 4, stride = 2} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{an identity shortcut of 4 channels cannot be added to a stem of 8}}
  %0 = arch.basic_block %x {out_channels = 8} layer "b" : tensor<?x8x8x8xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'b': arch.inverted_residual: shortcut is projection and should be identity or none}}
  %0 = arch.inverted_residual %x {out_channels = 4, shortcut = projection} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{expand_channels is 0 and should be at least 1}}
  %0 = arch.inverted_residual %x {expand_channels = 0, out_channels = 4} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{'a b' is no name for a layer: letters, digits, _, -, $ and single dots inside}}
  %0 = arch.relu %x layer "a b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{'a..b' is no name for a layer}}
  %0 = arch.relu %x layer "a..b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{'' is no name for a layer}}
  %0 = arch.cbr %x {out_channels = 4, kernel = 1} parts ["c", "", "r"]
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'r': arch.relu: arch.relu stands for no other layers, so it has no parts}}
  %0 = arch.relu %x layer "r" parts ["a", "b"]
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'r': arch.relu: gives 8x8x4 for 8x8x4, but its type says 8x8x5}}
  %0 = arch.relu %x layer "r" : tensor<?x8x8x5xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{the batch of tensor<2x8x8x4xf32> should be unknown (?)}}
  %0 = arch.relu %x layer "r" : tensor<2x8x8x4xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{tensor<?x8x8xf32> should be a tensor of f32 with four sizes: batch, height, width, channels}}
  %0 = arch.relu %x layer "r" : tensor<?x8x8xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{tensor<?x8x8x4xf64> should be a tensor of f32}}
  %0 = arch.relu %x layer "r" : tensor<?x8x8x4xf64>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{tensor<?x0x8x4xf32> is empty}}
  %0 = arch.relu %x layer "r" : tensor<?x0x8x4xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  %1 = arch.flatten %x : tensor<?x1x1x256xf32>
  // expected-error@+1 {{layer 'add1': arch.add: the shortcut is 8x8x4, the stem 1x1x256}}
  %0 = arch.add %x, %1 layer "add1" : tensor<?x8x8x4xf32>
  arch.output %0
}

// -----

// expected-error@+1 {{arch.model: the input of model @m: the batch of tensor<7x8x8x4xf32> should be unknown (?)}}
arch.model @m(%x: tensor<7x8x8x4xf32>) {
  arch.output %x
}

// -----

// expected-error@+1 {{arch.model: model @m should end in arch.output}}
arch.model @m(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.relu %x
  arch.yield %0
}

// -----

// expected-error@+1 {{arch.model: model @m takes 2 values and should take one}}
"arch.model"() <{sym_name = "m"}> ({
^bb0(%x: tensor<?x8x8x4xf32>, %y: tensor<?x8x8x4xf32>):
  "arch.output"(%x) : (tensor<?x8x8x4xf32>) -> ()
}) : () -> ()

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 's': arch.seq: the body of arch.seq should end in arch.yield}}
  %0 = arch.seq %x layer "s" (%a) {
    arch.output %a
  }
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{arch.seq: the body of arch.seq takes tensor<?x?x?x?xf32>, but it is given tensor<?x8x8x4xf32>}}
  %0 = "arch.seq"(%x) ({
  ^bb0(%a: tensor<?x?x?x?xf32>):
    "arch.yield"(%a) : (tensor<?x?x?x?xf32>) -> ()
  }) : (tensor<?x8x8x4xf32>) -> tensor<?x?x?x?xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{arch.add2: the stem of arch.add2 takes 2 values and should take one}}
  %0 = "arch.add2"(%x) ({
  ^bb0(%a: tensor<?x8x8x4xf32>):
    "arch.yield"(%a) : (tensor<?x8x8x4xf32>) -> ()
  }, {
  ^bb0(%a: tensor<?x8x8x4xf32>, %b: tensor<?x8x8x4xf32>):
    "arch.yield"(%a) : (tensor<?x8x8x4xf32>) -> ()
  }) : (tensor<?x8x8x4xf32>) -> tensor<?x?x?x?xf32>
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'r': arch.repeat: times is 0 and should be at least 1}}
  %0 = arch.repeat %x {times = 0} layer "r" (%a) { arch.yield %a }
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'b': arch.block: a block of style RESNET_1_3_1 needs mid, its inner width}}
  %0 = arch.block %x {style = RESNET_1_3_1, out = 4} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'b': arch.block: a block of style MB_E6_K3 has no inner width, so it takes no mid}}
  %0 = arch.block %x {style = MB_E6_K3, mid = 8, out = 4} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{out is 0 and should be at least 1}}
  %0 = arch.block %x {style = RESNET_3_3, out = 0} layer "b"
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{'s.' is no name for a layer}}
  %0 = arch.seq %x layer "s." (%a) { arch.yield %a }
  arch.output %0
}
