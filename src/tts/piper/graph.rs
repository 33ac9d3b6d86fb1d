//! Makes a Piper model tell how long each phoneme lasts.
//!
//! The graph computes the lengths itself (the output of its one `Ceil` node:
//! frames for each phoneme id, VITS's `w_ceil`) but does not give them out. In
//! the protobuf encoding a field of a message that comes twice is merged, so a
//! second `ModelProto.graph` that holds nothing but one more output, appended
//! to the file's bytes, adds that output to the graph. No weight is touched
//! and no ONNX library is needed.
//!
//! Field numbers: onnx.proto, IR version 8.

/// `ModelProto.graph`.
const MODEL_GRAPH: u64 = 7;
/// `GraphProto.node`.
const GRAPH_NODE: u64 = 1;
/// `GraphProto.output`.
const GRAPH_OUTPUT: u64 = 12;
/// `NodeProto.output`.
const NODE_OUTPUT: u64 = 2;
/// `NodeProto.op_type`.
const NODE_OP: u64 = 4;
/// `ValueInfoProto.name`.
const VALUE_NAME: u64 = 1;

/// Adds the phoneme lengths to the outputs of a model; gives their name.
/// `None`, and the bytes untouched, when the model is not of that shape.
pub fn expose_lengths(model: &mut Vec<u8>) -> Option<String> {
    let name = lengths_name(model)?;
    let output = bytes_field(GRAPH_OUTPUT, &bytes_field(VALUE_NAME, name.as_bytes()));
    model.extend(bytes_field(MODEL_GRAPH, &output));
    Some(name)
}

/// The output of the graph's only `Ceil`.
fn lengths_name(model: &[u8]) -> Option<String> {
    let mut found = None;
    for graph in messages(model, MODEL_GRAPH)? {
        for node in messages(graph, GRAPH_NODE)? {
            if messages(node, NODE_OP)?.first() == Some(&&b"Ceil"[..]) {
                let output = *messages(node, NODE_OUTPUT)?.first()?;
                let name = std::str::from_utf8(output).ok()?;
                if found.replace(name.to_owned()).is_some() {
                    return None;
                }
            }
        }
    }
    found
}

/// The contents of every length-delimited field of this number. `None` when
/// the bytes are no protobuf message.
fn messages(mut bytes: &[u8], number: u64) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        match tag & 7 {
            0 => {
                varint(&mut bytes)?;
            }
            1 => bytes = bytes.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (content, rest) = bytes.split_at_checked(length)?;
                if tag >> 3 == number {
                    found.push(content);
                }
                bytes = rest;
            }
            5 => bytes = bytes.get(4..)?,
            _ => return None,
        }
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn bytes_field(number: u64, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for mut value in [number << 3 | 2, content.len() as u64] {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(op: &str, output: &str) -> Vec<u8> {
        let inner =
            [bytes_field(NODE_OUTPUT, output.as_bytes()), bytes_field(NODE_OP, op.as_bytes())].concat();
        bytes_field(GRAPH_NODE, &inner)
    }

    fn model(nodes: &[Vec<u8>]) -> Vec<u8> {
        // An ir_version (varint) before the graph, as real files have.
        [vec![0x08, 0x08], bytes_field(MODEL_GRAPH, &nodes.concat())].concat()
    }

    #[test]
    fn the_output_of_the_only_ceil_is_added() {
        let mut bytes = model(&[node("Mul", "a"), node("Ceil", "/Ceil_output_0"), node("Add", "b")]);
        assert_eq!(expose_lengths(&mut bytes).as_deref(), Some("/Ceil_output_0"));
        let graphs = messages(&bytes, MODEL_GRAPH).expect("it is a message");
        assert_eq!(graphs.len(), 2);
        let outputs = messages(graphs[1], GRAPH_OUTPUT).expect("it is a message");
        assert_eq!(messages(outputs[0], VALUE_NAME), Some(vec![&b"/Ceil_output_0"[..]]));
    }

    #[test]
    fn another_shape_is_left_alone() {
        for nodes in [vec![node("Mul", "a")], vec![node("Ceil", "a"), node("Ceil", "b")]] {
            let mut bytes = model(&nodes);
            let before = bytes.clone();
            assert_eq!(expose_lengths(&mut bytes), None);
            assert_eq!(bytes, before);
        }
    }

    #[test]
    fn broken_bytes_are_no_model() {
        let whole = model(&[node("Ceil", "lengths")]);
        for end in 1..whole.len() {
            expose_lengths(&mut whole[..end].to_vec());
        }
        assert_eq!(expose_lengths(&mut vec![0xff; 40]), None);
        assert_eq!(expose_lengths(&mut b"version https://git-lfs".to_vec()), None);
    }
}
