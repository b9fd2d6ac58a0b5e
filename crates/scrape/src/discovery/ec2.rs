//! `ec2_sd_configs`: machines of Amazon's EC2, asked by its query API.

use platform::network::{HttpRequest, NetworkPlatform};

use super::http::fetch;
use super::{Found, Sink, TargetGroup, join_host_port, labels_of, sanitized};
use crate::aws::{self, xml, xml::Element};
use crate::client::Client;
use crate::config::{Credentials, Ec2Discovery, HttpConfig, Sigv4Config};
use relabel::Labels;

const API_VERSION: &str = "2016-11-15";

/// The service's name in signatures.
const SERVICE: &str = "ec2";

pub(super) async fn run(config: &Ec2Discovery, network: &NetworkPlatform, sink: &Sink) {
    let signing = Sigv4Config { identity: config.identity.clone(), service: SERVICE.to_owned() };
    let http = HttpConfig { credentials: Credentials::Sigv4(Box::new(signing)), ..config.http.clone() };
    let client = Client::new(network, &http);
    loop {
        sink(look(config, network, &client).await);
        network.tasks.sleep_ms(config.refresh_ms).await;
    }
}

/// Where machines of a region are asked for.
fn address(config: &Ec2Discovery, region: &str) -> String {
    match config.endpoint.as_str() {
        "" => format!("https://ec2.{region}.{}/", aws::domain(region)),
        endpoint if endpoint.contains("://") => format!("{}/", endpoint.trim_end_matches('/')),
        endpoint => format!("https://{endpoint}/"),
    }
}

async fn look(config: &Ec2Discovery, network: &NetworkPlatform, client: &Client) -> Found {
    let region = aws::region(network, &config.identity)?;
    let url = address(config, &region);
    let zones = ask(network, client, &url, &[("Action", "DescribeAvailabilityZones".to_owned())]).await?;
    let mut targets = Vec::new();
    let mut next = String::new();
    loop {
        let mut parameters = vec![("Action", "DescribeInstances".to_owned()), ("MaxResults", "1000".to_owned())];
        if !next.is_empty() {
            parameters.push(("NextToken", next.clone()));
        }
        let filters = filters(config);
        parameters.extend(filters.iter().map(|(name, value)| (name.as_str(), value.clone())));
        let answer = ask(network, client, &url, &parameters).await?;
        for reservation in answer.items("reservationSet") {
            for instance in reservation.items("instancesSet") {
                targets.extend(target(config, &region, &zones, reservation, instance));
            }
        }
        answer.text("nextToken").clone_into(&mut next);
        if next.is_empty() {
            break;
        }
    }
    Ok(vec![TargetGroup { source: region, targets, ..TargetGroup::default() }])
}

fn filters(config: &Ec2Discovery) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    for (number, filter) in config.filters.iter().enumerate() {
        parameters.push((format!("Filter.{}.Name", number + 1), filter.name.clone()));
        for (value_number, value) in filter.values.iter().enumerate() {
            parameters.push((format!("Filter.{}.Value.{}", number + 1, value_number + 1), value.clone()));
        }
    }
    parameters
}

async fn ask(
    network: &NetworkPlatform,
    client: &Client,
    url: &str,
    parameters: &[(&str, String)],
) -> Result<Element, String> {
    let body = {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Version", API_VERSION);
        form.extend_pairs(parameters);
        form.finish().into_bytes()
    };
    let request = HttpRequest { method: "POST", url: url.to_owned(), headers: Vec::new(), body }
        .with_header("Content-Type", "application/x-www-form-urlencoded; charset=utf-8");
    let answer = fetch(client, network, request).await?;
    let text = std::str::from_utf8(&answer.body).map_err(|_| "the answer is not UTF-8".to_owned())?;
    xml::parse(text)
}

/// `None` for a machine without an address.
fn target(
    config: &Ec2Discovery,
    region: &str,
    zones: &Element,
    reservation: &Element,
    instance: &Element,
) -> Option<Labels> {
    let private_ip = Some(instance.text("privateIpAddress")).filter(|ip| !ip.is_empty())?;
    let zone = instance.child("placement").map_or("", |placement| placement.text("availabilityZone"));
    let zone_id = zones.items("availabilityZoneInfo").find(|found| found.text("zoneName") == zone);
    let address = join_host_port(private_ip, config.port);
    let mut labels = labels_of([
        ("__address__", address.as_str()),
        ("__meta_ec2_ami", instance.text("imageId")),
        ("__meta_ec2_architecture", instance.text("architecture")),
        ("__meta_ec2_availability_zone", zone),
        ("__meta_ec2_availability_zone_id", zone_id.map_or("", |zone| zone.text("zoneId"))),
        ("__meta_ec2_instance_id", instance.text("instanceId")),
        ("__meta_ec2_instance_lifecycle", instance.text("instanceLifecycle")),
        ("__meta_ec2_instance_state", instance.child("instanceState").map_or("", |state| state.text("name"))),
        ("__meta_ec2_instance_type", instance.text("instanceType")),
        ("__meta_ec2_owner_id", reservation.text("ownerId")),
        ("__meta_ec2_platform", instance.text("platform")),
        ("__meta_ec2_private_dns_name", instance.text("privateDnsName")),
        ("__meta_ec2_private_ip", private_ip),
        ("__meta_ec2_public_dns_name", instance.text("dnsName")),
        ("__meta_ec2_public_ip", instance.text("ipAddress")),
        ("__meta_ec2_region", region),
        ("__meta_ec2_vpc_id", instance.text("vpcId")),
    ]);
    if !instance.text("vpcId").is_empty() {
        add_interfaces(&mut labels, instance);
    }
    for tag in instance.items("tagSet") {
        let name = format!("__meta_ec2_tag_{}", sanitized(tag.text("key")));
        labels.insert(name, tag.text("value").to_owned());
    }
    Some(labels)
}

fn add_interfaces(labels: &mut Labels, instance: &Element) {
    let (mut subnets, mut addresses, mut primary): (Vec<&str>, Vec<&str>, Vec<&str>) = Default::default();
    for interface in instance.items("networkInterfaceSet") {
        let subnet = interface.text("subnetId");
        if !subnet.is_empty() && !subnets.contains(&subnet) {
            subnets.push(subnet);
        }
        for address in interface.items("ipv6AddressesSet") {
            addresses.push(address.text("ipv6Address"));
            if address.text("isPrimaryIpv6") == "true" {
                primary.push(address.text("ipv6Address"));
            }
        }
    }
    let own = [("__meta_ec2_primary_subnet_id", instance.text("subnetId"))];
    labels.extend(labels_of(own));
    for (name, values) in [
        ("__meta_ec2_subnet_id", subnets),
        ("__meta_ec2_ipv6_addresses", addresses),
        ("__meta_ec2_primary_ipv6_addresses", primary),
    ] {
        if !values.is_empty() {
            labels.insert(name.to_owned(), format!(",{},", values.join(",")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};

    use super::*;
    use crate::config::{AwsIdentity, Filter, Source};

    const ZONES: &str = "<r><availabilityZoneInfo><item><zoneName>eu-a</zoneName><zoneId>euc1-az2</zoneId></item></availabilityZoneInfo></r>";

    const INSTANCES: &str = "<?xml version=\"1.0\"?>
<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>1</requestId><reservationSet><item>
<ownerId>42</ownerId><instancesSet><item><instanceId>i-1</instanceId><imageId>ami-1</imageId>
<instanceState><code>16</code><name>running</name></instanceState><privateDnsName>ip.internal</privateDnsName><dnsName/>
<instanceType>t3.micro</instanceType><placement><availabilityZone>eu-a</availabilityZone></placement><subnetId>s-1</subnetId>
<vpcId>v-1</vpcId><privateIpAddress>10.0.0.1</privateIpAddress><architecture>arm64</architecture>
<tagSet><item><key>Name</key><value>web &amp; more</value></item></tagSet>
<networkInterfaceSet><item><subnetId>s-1</subnetId><ipv6AddressesSet><item><ipv6Address>::1</ipv6Address></item></ipv6AddressesSet></item></networkInterfaceSet>
</item><item><instanceId>i-2</instanceId></item></instancesSet></item></reservationSet></DescribeInstancesResponse>";

    const ROLE: &str = "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
<SessionToken>token</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>";

    #[test]
    fn machines_become_targets() {
        let simulation = platform::sim::Simulation::new(1);
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = requests.clone();
        let network = SimNetwork::new(&simulation, move |request| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let authorization = request.header("Authorization").unwrap();
            let asks_for_role = request.url == "https://sts.eu.amazonaws.com/";
            let (key, service) = if asks_for_role { ("KEY", "sts") } else { ("ROLE", "ec2") };
            assert!(authorization.starts_with(&format!("AWS4-HMAC-SHA256 Credential={key}/2023")), "{authorization}");
            assert!(authorization.contains(&format!("/eu/{service}/aws4_request")), "{authorization}");
            assert_eq!(request.header("X-Amz-Security-Token"), (!asks_for_role).then_some("token"));
            let answer = match () {
                () if asks_for_role => ROLE,
                () if body.contains("DescribeInstances") => INSTANCES,
                () => ZONES,
            };
            log.lock().unwrap().push(body);
            SimAnswer { delay_ms: 1, result: Ok(SimResponse::ok("text/xml", answer)) }
        });
        let config = Ec2Discovery {
            identity: AwsIdentity {
                region: "eu".to_owned(),
                access_key: "KEY".to_owned(),
                secret_key: Some(Source::Inline("SECRET".to_owned())),
                role_arn: "arn:aws:iam::1:role/look".to_owned(),
                external_id: "x".to_owned(),
                ..AwsIdentity::default()
            },
            endpoint: String::new(),
            port: 9100,
            filters: vec![Filter { name: "tag:role".to_owned(), values: vec!["web".to_owned()] }],
            refresh_ms: 60_000,
            http: HttpConfig::default(),
        };
        let found: Arc<Mutex<Vec<Found>>> = Arc::default();
        let (sink_found, own) = (found.clone(), network.platform());
        network.platform().tasks.spawn(Box::pin(async move {
            run(&config, &own, &move |groups| sink_found.lock().unwrap().push(groups)).await;
        }));
        network.run_ms(1_000);
        let groups = found.lock().unwrap()[0].clone().unwrap();
        assert_eq!(groups[0].targets.len(), 1);
        let target = &groups[0].targets[0];
        for (name, value) in [
            ("__address__", "10.0.0.1:9100"),
            ("__meta_ec2_availability_zone_id", "euc1-az2"),
            ("__meta_ec2_instance_state", "running"),
            ("__meta_ec2_owner_id", "42"),
            ("__meta_ec2_tag_Name", "web & more"),
            ("__meta_ec2_subnet_id", ",s-1,"),
            ("__meta_ec2_ipv6_addresses", ",::1,"),
            ("__meta_ec2_region", "eu"),
        ] {
            assert_eq!(target[name], value, "{name}");
        }
        assert!(!target.contains_key("__meta_ec2_public_dns_name"));
        let requests = requests.lock().unwrap();
        assert_eq!(requests.len(), 3, "the role's keys serve several requests: {requests:?}");
        assert!(
            requests[0].contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Flook&RoleSessionName=thalweg&ExternalId=x")
        );
        assert!(requests[2].contains("Filter.1.Name=tag%3Arole&Filter.1.Value.1=web"));
    }
}
